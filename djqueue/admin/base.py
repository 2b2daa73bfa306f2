"""What all admin classes share: looking only, and in the right database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db import DEFAULT_DB_ALIAS, models, router
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.text import capfirst

from djqueue import compat
from djqueue.backends import PostgresBackend
from djqueue.conf import Options
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.protocol import Engine
from djqueue.exceptions import InvalidOptions
from djqueue.models import Job

M = TypeVar("M", bound=models.Model)

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin as ModelAdmin
else:
    # At run time Django's class takes no type parameter.
    class ModelAdmin(admin.ModelAdmin):
        def __class_getitem__(cls, item: object) -> type:
            return cls


class ReadOnlyAdmin(ModelAdmin[M]):
    """Show rows to whoever has Django's view permission; let nobody write any by a form.

    The engine writes rows, by statements that know about claims and wake-ups. A form would not, and a form for a
    task's name and arguments would let its user run any task.
    """

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    class Media:
        css = {"all": ["djqueue/admin.css"]}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        # Django's own lets the change permission see too; here nobody can change anything, so it says nothing.
        return bool(request.user.has_perm(f"{self.opts.app_label}.view_{self.opts.model_name}"))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        # Django would say "Select job to view".
        title = capfirst(str(self.opts.verbose_name_plural))
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[M]:
        return super().get_queryset(request).using(database(self.model))


def database(model: type[models.Model]) -> str:
    """Name the alias to read: what a router says, or else what the backend's options say."""
    routed = router.db_for_read(model)
    if routed != DEFAULT_DB_ALIAS:
        return routed
    return next((settings.database for _, settings in backends()), DEFAULT_DB_ALIAS)


def backends() -> Iterator[tuple[PostgresBackend, Options]]:
    """Yield the backends that keep their jobs in PostgreSQL, with their options."""
    for alias in compat.task_backends:
        # Wrong settings are errors of the system checks; looking at the rows still works.
        with suppress(compat.InvalidTaskBackend, InvalidOptions):
            backend = compat.task_backends[alias]
            if isinstance(backend, PostgresBackend):
                yield backend, backend.settings


def engine() -> Engine:
    """Return the engine of the database that is shown."""
    alias = database(Job)
    return next(
        (backend.engine for backend, settings in backends() if settings.database == alias), PostgresEngine(alias)
    )


def list_url(site: admin.AdminSite, model: type[models.Model], **params: str) -> str:
    url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist", current_app=site.name)
    return f"{url}?{urlencode(params)}" if params else url


def page_url(site: admin.AdminSite, model: type[models.Model], pk: object) -> str:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
    return reverse(name, args=[quote(str(pk))], current_app=site.name)


def may_view(request: HttpRequest, model: type[models.Model]) -> bool:
    return bool(request.user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}"))
