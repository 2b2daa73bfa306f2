from __future__ import annotations

import io
import json
import zlib
from base64 import b64encode
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from hypothesis import given

from djqueue import JobTooLarge, Task, Unique, api, compat, task
from djqueue.bulk import insert as bulk
from djqueue.jobs.compression import LEAST_BYTES, compressed, decode_arguments, readable
from djqueue.jobs.encoding import MAX_ARGS_BYTES, Encoded, encode_arguments
from djqueue.models import FinishedJob, Job
from djqueue.stores import PostgresStore
from tests import processes
from tests.app import tasks
from tests.test_encoding import LIMIT, json_values

LARGE = {"items": [{"sku": f"A-{number}", "name": "Ünal"} for number in range(200)]}
packed = tasks.noop.using(compress=True)


def stored() -> Job:
    return Job.objects.latest("pk")


def is_compressed(job: Any) -> bool:
    return isinstance(job.args, dict) and set(job.args) == {"zlib"} and job.kwargs == {}


def zipped(data: bytes) -> str:
    return b64encode(zlib.compress(data)).decode()


@given(value=json_values)
def test_all_json_survives(value: Any) -> None:
    padding = "x" * LEAST_BYTES
    plain = encode_arguments((value, padding), {"value": value}, LIMIT)

    stored = compressed(plain)

    assert stored != plain
    assert decode_arguments(*stored) == ([value, padding], {"value": value})


@pytest.mark.parametrize("plain", [Encoded("[]", "{}"), Encoded('["aa"]', "{}"), Encoded(f'["{"a" * 1000}"]', "{}")])
def test_small_arguments_stay_as_they_are(plain: Encoded) -> None:
    assert compressed(plain) is plain


def test_arguments_that_would_not_become_smaller_stay_as_they_are() -> None:
    noise = "".join(chr(0x4E00 + (number * 7919) % 20_000) for number in range(1000))
    plain = encode_arguments((b64encode(zlib.compress(noise.encode())).decode(),), {}, LIMIT)
    assert len(plain.args) > LEAST_BYTES

    assert compressed(plain) is plain


def test_one_byte_more_than_the_least_is_compressed() -> None:
    text = "a" * (LEAST_BYTES - len('[""]{}'))

    assert compressed(Encoded(f'["{text}"]', "{}")).args.startswith('{"zlib":')


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"zlib": "!"}, "cannot be read"),
        ({"zlib": 3}, "cannot be read"),
        ({"zlib": b64encode(b"no zlib").decode()}, "cannot be read"),
        ({"zlib": zipped(b"[[1],{}]")[:12]}, "cannot be read"),
        ({"zlib": zipped(b"no JSON")}, "cannot be read"),
        ({"zlib": zipped(b"3")}, "cannot be read"),
        ({"zlib": zipped(b"[[],{},0]")}, "cannot be read"),
        ({"zlib": zipped(b"[" * 100_000)}, "cannot be read"),
        ({"zlib": zipped(b"[{},[]]")}, "not a list and an object"),
        ({"zlib": zipped(b"[[],{}]"), "more": 1}, "not a list and an object"),
        ({}, "not a list and an object"),
        (3, "not a list and an object"),
    ],
)
def test_what_somebody_made_of_a_row_is_an_error_for_its_job_and_none_for_who_looks(args: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        decode_arguments(json.dumps(args), "{}")

    readable(args, {})


def test_few_bytes_that_stand_for_many_are_not_unpacked() -> None:
    bomb = {"zlib": zipped(b'[["' + b" " * (MAX_ARGS_BYTES + 1000) + b'"],{}]')}
    assert len(bomb["zlib"]) < 100_000

    with pytest.raises(ValueError, match="more than 67,108,864 bytes"):
        decode_arguments(json.dumps(bomb), "{}")
    assert readable(bomb, {}) == (bomb, {})


@pytest.mark.django_db
class TestEnqueue:
    def test_the_row_is_smaller_and_the_result_shows_what_was_enqueued(self) -> None:
        result = packed.enqueue(LARGE, reason="test")

        assert is_compressed(job := stored())
        assert len(json.dumps(job.args)) < len(json.dumps(LARGE)) / 3
        assert (result.args, result.kwargs) == ([LARGE], {"reason": "test"})
        again = packed.get_result(result.id)
        assert (again.args, again.kwargs) == ([LARGE], {"reason": "test"})

    def test_a_task_without_the_option_stores_plain_arguments(self) -> None:
        tasks.noop.enqueue(LARGE)

        assert stored().args == [LARGE]

    def test_a_task_with_the_option_can_do_without_it_for_one_job(self) -> None:
        packed.using(compress=False).enqueue(LARGE)

        assert stored().args == [LARGE]

    def test_the_limit_counts_the_plain_size(self) -> None:
        large = "x" * PostgresStore("default", {}).settings.max_args_bytes
        assert len(compressed(Encoded(f'["{large}"]', "{}")).args) < 2000

        with pytest.raises(JobTooLarge):
            packed.enqueue(large)

    def test_jobs_in_bulk_are_compressed_each_by_itself(self) -> None:
        result = packed.enqueue_many(((LARGE, number), {}) for number in range(3))

        assert [is_compressed(job) for job in Job.objects.all()] == [True] * 3
        assert [packed.get_result(id).args[1] for id in result.ids] == [0, 1, 2]

    def test_jobs_of_a_file_are_compressed_too(self) -> None:
        bulk.bulk_insert(packed, io.StringIO(json.dumps([LARGE]) + "\n[1]\n"))

        assert [is_compressed(job) for job in Job.objects.order_by("pk")] == [True, False]

    def test_receivers_of_the_signal_see_plain_arguments(self) -> None:
        seen = []

        def receiver(task_result: Any, **_: object) -> None:
            seen.append(task_result.args)

        compat.task_enqueued.connect(receiver)
        try:
            packed.enqueue(LARGE)
            packed.enqueue_many([((LARGE,), {})])
        finally:
            compat.task_enqueued.disconnect(receiver)

        assert seen == [[LARGE], [LARGE]]

    def test_the_option_is_checked(self) -> None:
        with pytest.raises(compat.InvalidTask, match=r"Invalid compress .*: use True or False"):
            task(compress=9)(tasks.add.func)  # type: ignore[call-overload]


@pytest.mark.django_db
class TestUnique:
    unique: Task = tasks.noop.using(unique=True)

    def test_the_key_is_that_of_the_plain_arguments(self) -> None:
        first = self.unique.enqueue(LARGE)
        again = self.unique.using(compress=True).enqueue(LARGE)

        assert (again.was_duplicate, again.id, again.args) == (True, first.id, [LARGE])

    def test_a_duplicate_gets_the_arguments_of_the_compressed_holder(self) -> None:
        self.unique.using(compress=True).enqueue(LARGE)

        again = self.unique.enqueue(LARGE)

        assert is_compressed(stored())
        assert (again.was_duplicate, again.args) == (True, [LARGE])

    def test_replacing_takes_the_whole_of_the_newest_arguments(self) -> None:
        rule = Unique(key="one", on_conflict="replace")
        newest = tasks.noop.using(unique=rule, compress=True)
        newest.enqueue(LARGE)

        newest.enqueue(1, small=True)
        assert (stored().args, stored().kwargs) == ([1], {"small": True})

        newest.enqueue(LARGE, small=False)
        assert is_compressed(stored())

    def test_keys_in_bulk_are_those_of_the_plain_arguments(self) -> None:
        result = self.unique.using(compress=True).enqueue_many([((LARGE,), {}), ((LARGE,), {})])

        assert (result.count, result.duplicates) == (1, 1)
        assert is_compressed(stored())


@pytest.mark.django_db
class TestLooking:
    def test_code_gets_plain_arguments(self) -> None:
        job = api.get_job(packed.enqueue(LARGE, x=1))

        assert job is not None
        assert (job.args, job.kwargs) == ([LARGE], {"x": 1})

    def test_the_admin_shows_plain_arguments(self, admin_client: Client) -> None:
        job_id = packed.enqueue(LARGE, reason="stocktaking").id

        page = admin_client.get(f"/admin/djqueue/job/{job_id}/change/").content.decode()

        assert "A-17" in page
        assert "stocktaking" in page

    def test_arguments_that_cannot_be_read_are_shown_as_they_stand_there(self, admin_client: Client) -> None:
        result = packed.enqueue(LARGE)
        Job.objects.update(args={"zlib": "broken"})

        page = admin_client.get(f"/admin/djqueue/job/{result.id}/change/").content.decode()

        assert "broken" in page
        assert packed.get_result(result.id).args == {"zlib": "broken"}

    def test_cancel_and_retry_keep_them(self) -> None:
        result = packed.enqueue(LARGE)

        api.cancel(result)
        assert is_compressed(FinishedJob.objects.get())
        assert packed.get_result(result.id).args == [LARGE]

        api.retry(result)
        assert is_compressed(stored())


@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_task_knows_nothing_of_it_runs_the_job() -> None:
    name = "Ada " * 1000
    with transaction.atomic():
        plain = tasks.greet.using(compress=True).enqueue(name)
        in_context = tasks.tell_attempt.using(compress=True).enqueue(LARGE)
        broken = tasks.greet.using(compress=True, max_attempts=1).enqueue(name)
        Job.objects.filter(pk=broken.id).update(args={"zlib": "broken"})

    processes.drain()

    for result in (plain, in_context, broken):
        result.refresh()
    assert plain.return_value == f"Hello, {name}!"
    assert in_context.return_value["attempt"] == 1
    assert is_compressed(FinishedJob.objects.get(pk=plain.id))
    parked = Job.objects.get(pk=broken.id)
    assert "somebody edited the row" in parked.meta["parked"].lower()
