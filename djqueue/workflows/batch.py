"""``Batch``: any number of independent jobs, counted together, with callbacks.

Members are stored in slices, and each slice is a part of the batch: a million members are never in memory at once, and no row is
written by all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from djqueue import compat, propagation, stores
from djqueue.exceptions import InvalidJob, InvalidWorkflow
from djqueue.jobs.chunks import Chunks
from djqueue.jobs.compression import compressed
from djqueue.jobs.encoding import Encoded, encode_arguments
from djqueue.jobs.flows import DependencyRule, FlowJob, FlowKind, NewFlow, Upstream, UpstreamKind
from djqueue.tasks.new_job import encoded_job
from djqueue.tasks.signatures import check_arguments, checker
from djqueue.tasks.task import Task
from djqueue.workflows.canvas import Signature, backend_of
from djqueue.workflows.handle import EnqueuedWorkflow
from djqueue.workflows.inputs import KEY
from djqueue.workflows.refusals import MAX_FLOW_NAME, check_task, is_text

if TYPE_CHECKING:
    Pairs = Iterable[tuple[Sequence[Any], Mapping[str, Any]]]
    _Member = Signature | tuple[Task, Pairs]

SLICE = 5000
_NO_ARGUMENTS = Encoded("[]", "{}")


class Batch:
    """Independent jobs and what follows them::

        batch = Batch("import", on_success=report.s(), on_failure=alert.s(), on_finish=clean_up.s())
        batch.add_many(import_row, (((row.pk,), {}) for row in rows.iterator()))
        batch.enqueue()

    ``on_success`` runs after all jobs have completed, ``on_finish`` after all have ended, and ``on_failure`` as soon as the first
    did not complete. A callback gets its own arguments; ``context.workflow`` is the batch.
    """

    def __init__(
        self,
        name: str,
        *,
        on_success: Signature | None = None,
        on_failure: Signature | None = None,
        on_finish: Signature | None = None,
        meta: Mapping[str, Any] | None = None,
        backend: str | None = None,
    ) -> None:
        """``backend``: the entry of TASKS. None: that of the first task of a callback or a job."""
        if not is_text(name, MAX_FLOW_NAME):
            raise InvalidWorkflow(f"Invalid name of a batch {name!r:.300}: use 1–255 printable characters.")
        self.name = name
        self.callbacks: dict[str, tuple[Signature, DependencyRule]] = {}
        rules = (
            ("on_success", on_success, DependencyRule.SUCCESS),
            ("on_failure", on_failure, DependencyRule.FAILURE),
            ("on_finish", on_finish, DependencyRule.ANY_END),
        )
        for keyword, signature, rule in rules:
            if signature is None:
                continue
            if not isinstance(signature, Signature):
                raise InvalidWorkflow(
                    f"Invalid {keyword} {signature!r:.200} of a batch: use a signature, like task.s(…)."
                )
            self.callbacks[keyword] = (signature, rule)
        self.meta = dict(meta or {})
        self.backend = backend
        self._members: list[_Member] = []

    def add(self, work: compat.Task[..., Any] | Signature, /, *args: Any, **kwargs: Any) -> Batch:
        """Add a job; return the batch."""
        self._members.append(_signature(work, args, kwargs))
        return self

    def add_many(self, task: compat.Task[..., Any], items: Pairs) -> Batch:
        """Add a job per pair of args and kwargs. They are read when the batch is enqueued, ``SLICE`` at a time."""
        self._members.append((Task.of(task), items))
        return self

    def enqueue(self, *, is_open: bool = False) -> EnqueuedBatch:
        """Store callbacks and jobs in one transaction, or in the caller's.

        ``is_open``: more jobs follow, and the batch does not finish before ``close()``. A store outside the database stores slice
        by slice, as ``enqueue_many`` does.
        """
        backend = self._backend()
        slices = _Slices(backend)
        chunks = slices.of(self._members)
        first, second = next(chunks, []), next(chunks, None)
        # A batch without jobs has nothing whose end would finish it: closing does.
        is_single = not is_open and second is None and bool(first)
        flow = NewFlow(FlowKind.BATCH, self.name, is_open=not is_single, meta=json.dumps(self.meta))
        callbacks = [self._callback(slices, keyword) for keyword in self.callbacks]
        with backend.store.together():
            inserted = backend.store.insert_flow([flow], [*(first if is_single else ()), *callbacks])
            ids = [str(id) for id in inserted.job_ids]
            names = dict(zip(self.callbacks, ids[len(ids) - len(callbacks) :], strict=True))
            batch = EnqueuedBatch(str(inserted.flow_ids[0]), self.name, backend.alias, job_ids=names)
            if not is_single:
                for members in chain([first] if first else (), [second] if second else (), chunks):
                    batch.insert(members)
                if not is_open:
                    batch.close()
        return batch

    async def aenqueue(self, *, is_open: bool = False) -> EnqueuedBatch:
        """See ``enqueue``."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)(is_open=is_open)

    def _backend(self) -> stores.StoreBackend:
        tasks = [signature.task for signature, _ in self.callbacks.values()]
        tasks += [each.task if isinstance(each, Signature) else each[0] for each in self._members[:1]]
        alias = self.backend or (tasks[0].backend if tasks else compat.DEFAULT_TASK_BACKEND_ALIAS)
        return backend_of(alias, "Batches")

    def _callback(self, slices: _Slices, keyword: str) -> FlowJob:
        signature, rule = self.callbacks[keyword]
        job = slices.job(signature, f'"{KEY}":{json.dumps({"name": keyword})}')
        # Not counted by the batch: it would wait for itself.
        return job._replace(flow=None, upstreams=[Upstream(UpstreamKind.FLOW, 0, rule)])

    def __repr__(self) -> str:
        return f"<Batch {self.name!r}>"


@dataclass(frozen=True, slots=True)
class EnqueuedBatch(EnqueuedWorkflow):
    """A batch in the store. While it is open, it grows, also in another process: ``EnqueuedBatch(id, name, backend)``."""

    def add(self, work: compat.Task[..., Any] | Signature, /, *args: Any, **kwargs: Any) -> None:
        """Store one more job."""
        self._store([_signature(work, args, kwargs)])

    def add_many(self, task: compat.Task[..., Any], items: Pairs) -> None:
        """Store a job per pair of args and kwargs, ``SLICE`` at a time, in one transaction or in the caller's."""
        self._store([(Task.of(task), items)])

    def close(self) -> bool:
        """Let the batch finish as soon as its jobs have ended; return False if it was closed already."""
        return self.engine.close_flow(int(self.id))

    def insert(self, members: Sequence[FlowJob]) -> None:
        """Store a slice as a part of the batch."""
        stores.store(self.backend).insert_flow([NewFlow(FlowKind.PART, whole_id=int(self.id))], members)

    def _store(self, members: Sequence[_Member]) -> None:
        backend = backend_of(self.backend, "Batches")
        with backend.store.together():
            for slice in _Slices(backend).of(members):
                self.insert(slice)

    async def aadd(self, work: compat.Task[..., Any] | Signature, /, *args: Any, **kwargs: Any) -> None:
        """See ``add``."""
        await sync_to_async(self.add, thread_sensitive=True)(work, *args, **kwargs)

    async def aadd_many(self, task: compat.Task[..., Any], items: Pairs) -> None:
        """See ``add_many``."""
        await sync_to_async(self.add_many, thread_sensitive=True)(task, items)

    async def aclose(self) -> bool:
        """See ``close``."""
        return await sync_to_async(self.close, thread_sensitive=True)()


class _Slices:
    """Checks and encodes members, a slice at a time."""

    def __init__(self, backend: stores.StoreBackend) -> None:
        self._backend = backend
        self._options = backend.store.settings
        self._meta = propagation.capture()

    def of(self, members: Iterable[_Member]) -> Iterator[list[FlowJob]]:
        """Yield the jobs of all members, each as one of the first flow of its insert."""
        single: list[FlowJob] = []
        for member in members:
            if isinstance(member, Signature):
                single.append(self.job(member))
                if len(single) == SLICE:
                    yield single
                    single = []
                continue
            if single:
                yield single
                single = []
            yield from self._many(*member)
        if single:
            yield single

    def job(self, signature: Signature, meta: str = "") -> FlowJob:
        """Return the job of a signature; ``meta`` is an item of JSON to add to its own."""
        where, task = f"{signature!r:.200}", Task.of(signature.task)
        self._check(task, where)
        try:
            encoded = encode_arguments(signature.args, signature.kwargs, self._options.max_args_bytes)
            check_arguments(task, signature.args, signature.kwargs)
        except InvalidJob as error:
            raise type(error)(f"{where}: {error}") from None
        own = f"{self._meta[:-1]}{'' if self._meta == '{}' else ','}{meta}}}" if meta else self._meta
        return FlowJob(encoded_job(task, encoded, own, self._options), 0)

    def _many(self, task: Task, items: Pairs) -> Iterator[list[FlowJob]]:
        self._check(task, f"{task.func.__name__}()")
        shared = encoded_job(task, _NO_ARGUMENTS, self._meta, self._options)
        for chunk in Chunks(items, SLICE, self._options.max_args_bytes, checker(task)):
            encoded = map(compressed, chunk) if task.compress else chunk
            yield [FlowJob(shared._replace(args=args, kwargs=kwargs), 0) for args, kwargs in encoded]

    def _check(self, task: Task, where: str) -> None:
        check_task(task, self._options, self._backend.alias, where)
        self._backend.validate_task(task)


def _signature(work: compat.Task[..., Any] | Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
    if isinstance(work, Signature):
        if args or kwargs:
            raise InvalidWorkflow("Arguments can only be added to a task. Use task.s(…) with all of them.")
        return work
    if not isinstance(work, compat.Task):
        raise InvalidWorkflow(f"Invalid job {work!r:.200} of a batch: use a task or a signature.")
    return Signature(Task.of(work), args, kwargs)
