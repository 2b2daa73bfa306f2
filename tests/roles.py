"""All roles of a worker in one: tests fetch, rescue and prune in turn, where a process has a connection for each."""

from __future__ import annotations

from typing import Any, Self

from djqueue.engines.protocol import Engine


class Roles:
    """Has the verbs of ``Fetcher``, ``Registrar`` and ``Maintainer``, whose connections are opened when they are needed."""

    def __init__(self, engine: Engine) -> None:
        self.fetcher = engine.open_fetcher()
        self.registrar = engine.open_registrar()
        self.maintainer = engine.open_maintainer(waits=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for role in (self.fetcher, self.registrar, self.maintainer):
            if hasattr(role, name):
                return getattr(role, name)
        raise AttributeError(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for role in (self.fetcher, self.registrar, self.maintainer):
            role.close()
