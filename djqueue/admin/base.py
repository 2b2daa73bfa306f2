"""What all admin classes share: the store that a page shows, and what happens when it does not answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import django
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext

from djqueue.admin.lists import RowChangeList, StoreChangeList
from djqueue.admin.stores import database, may_view, store_of, stores
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.jobs.encoding import is_storable

M = TypeVar("M", bound=models.Model)

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin as ModelAdmin
else:
    # At run time Django's class takes no type parameter.
    class ModelAdmin(admin.ModelAdmin):
        def __class_getitem__(cls, item: object) -> type:
            return cls


class StoreAdmin(ModelAdmin[M]):
    """Show the rows of whichever store the address names."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    change_list_template = "admin/djqueue/list.html"
    change_form_template = "admin/djqueue/page.html"
    object_history_template = "admin/djqueue/history.html"

    class Media:
        css = {"all": ["djqueue/admin.css"]}

    def get_urls(self) -> list[URLPattern]:
        urls = super().get_urls()
        for url in urls:
            url.callback = self.guarded(url.callback)
        return urls

    def guarded(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        """Make a view say in a sentence that the store does not answer, or does not take what it is given."""

        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not is_storable(unquote(kwargs.get("object_id") or "")):
                raise Http404(gettext("No row has such a key."))
            try:
                return view(request, *args, **kwargs)
            except (EngineUnavailable, EngineRefused) as error:
                if not self.has_view_permission(request):
                    raise PermissionDenied from error
                request.current_app = self.admin_site.name
                title = capfirst(str(self.opts.verbose_name_plural))
                # What Django's template of a list looks at besides the blocks that ours fills.
                context = {"title": title, "sentence": str(error), "cl": {"opts": self.opts}, "actions_on_top": True}
                context |= self.page_context(request)
                return TemplateResponse(request, "admin/djqueue/unavailable.html", context, status=503)

        return guarded

    def page_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return what the templates of all pages look at."""
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "is_popup": False,
            "has_view_permission": True,
            **self.store_context(request),
        }

    def store_context(self, request: HttpRequest) -> dict[str, Any]:
        shown, site = store_of(request), self.admin_site
        known = stores()
        return {
            "store": shown,
            "store_tabs": [
                (store.label, store.list_url(site, self.model), store.alias == shown.alias)
                for store in known
                if len(known) > 1
            ],
            "store_list_url": shown.list_url(site, self.model),
            # Django 6.1 made a list of the breadcrumbs, and moved the tools of a page out of its content, which ours replaces.
            "has_markup_of_6_1": django.VERSION >= (6, 1),
        }

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        # Django would say "Select job to view".
        title = capfirst(str(self.opts.verbose_name_plural))
        context = {"title": title, **self.store_context(request), **(extra_context or {})}
        return super().changelist_view(request, context)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        context = {**self.store_context(request), **(extra_context or {})}
        return super().changeform_view(request, object_id, form_url, context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().history_view(request, object_id, {**self.store_context(request), **(extra_context or {})})

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return StoreChangeList if store_of(request).has_tables else RowChangeList

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[M]:
        return super().get_queryset(request).using(database(self.model))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> M | None:
        store = store_of(request)
        if store.has_tables:
            return super().get_object(request, object_id, from_field)
        key = store.key(store.bare(object_id))
        return next((row for row in store.rows(self.model) if row.pk == key), None)

    def get_preserved_filters(self, request: HttpRequest) -> str:
        # The way back leads to the list of the same store, also for one who came by an address of his own.
        params = store_of(request).params
        return super().get_preserved_filters(request) or (
            urlencode({"_changelist_filters": urlencode(params)}) if params else ""
        )


class ReadOnlyAdmin(StoreAdmin[M]):
    """Show rows to whoever has Django's view permission; let nobody write any by a form.

    The engine writes rows, by statements that know about claims and wake-ups. A form would not, and a form for a
    task's name and arguments would let its user run any task.
    """

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        # Django's own lets the change permission see too; here nobody can change anything, so it says nothing.
        return may_view(request, self.model)
