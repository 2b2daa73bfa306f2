"""What all pages share: the store that a page shows, the list, and the answer when a store does not respond."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import django
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.utils import label_for_field, unquote
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext, ngettext

from djqueue.admin.lists import Column, List, Query, matching, ordered, with_filters
from djqueue.admin.sources import may_view, page_url, source_of, sources
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


class SourceAdmin(ModelAdmin[M]):
    """Show the rows of the store that the address names."""

    change_list_template = "admin/djqueue/list.html"
    change_form_template = "admin/djqueue/page.html"
    object_history_template = "admin/djqueue/history.html"
    list_per_page = 200
    sort_keys: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Column → the value by which the list can be sorted."""

    class Media:
        css = {"all": ["djqueue/admin.css"]}

    def get_urls(self) -> list[URLPattern]:
        urls = super().get_urls()
        for url in urls:
            url.callback = self.guarded(url.callback)
        return urls

    def guarded(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        """Make a view answer with a page of status 503 if the store does not respond, or refuses what it is given."""

        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not is_storable(unquote(kwargs.get("object_id") or "")):
                raise Http404(gettext("There is no row with this key."))
            try:
                return view(request, *args, **kwargs)
            except (EngineUnavailable, EngineRefused) as error:
                if not self.has_view_permission(request):
                    raise PermissionDenied from error
                context = {"sentence": str(error), "cl": {"opts": self.opts}}
                return self.page(request, "admin/djqueue/unavailable.html", context, status=503)

        return guarded

    def page(
        self, request: HttpRequest, template: str | Any, context: Mapping[str, Any], *, status: int = 200
    ) -> TemplateResponse:
        """Render a page of the admin."""
        request.current_app = self.admin_site.name
        title = capfirst(str(self.opts.verbose_name_plural))
        everything = {"title": title, **self.page_context(request), **context}
        return TemplateResponse(request, template, everything, status=status)

    def question(self, request: HttpRequest, template: str, title: str, context: Mapping[str, Any]) -> TemplateResponse:
        """Render a page that asks for a confirmation, or reports, within Django's frame of a form."""
        status = context.get("status", 200)
        frame = {"title": title, "original": title, "add": False, "change": True}
        return self.page(request, template, {**frame, **context}, status=status)

    def page_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return what the templates of all pages use."""
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "is_popup": False,
            "has_view_permission": True,
            "actions_on_top": True,
            "preserved_filters": self.get_preserved_filters(request),
            **self.source_context(request),
        }

    def source_context(self, request: HttpRequest) -> dict[str, Any]:
        shown, site, known = source_of(request), self.admin_site, sources()
        return {
            "source": shown,
            "source_tabs": [
                (source.label, source.list_url(site, self.model), source.alias == shown.alias)
                for source in known
                if len(known) > 1
            ],
            "source_list_url": shown.list_url(site, self.model),
            # Django 6.1 made a list of the breadcrumbs, and moved the tools of a page out of its content, which ours replaces.
            "has_markup_of_6_1": django.VERSION >= (6, 1),
        }

    # The list

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self.act(request)
        shown = self.listing(request)
        actions = self.get_action_choices(request, default_choices=[("", "---------")])
        form = self.action_form(auto_id=None) if len(actions) > 1 and shown.result_list else None
        media = self.media
        if form is not None:
            form.fields["action"].choices = actions
            media += form.media
        count = len(shown.result_list)
        context = {
            "cl": shown,
            "media": media,
            "action_form": form,
            "actions_selection_counter": self.actions_selection_counter,
            "selection_note": gettext("0 of %(cnt)s selected") % {"cnt": count},
            "selection_note_all": ngettext(
                "%(total_count)s selected", "All %(total_count)s selected", shown.result_count
            ) % {"total_count": shown.result_count},
            "module_name": str(self.opts.verbose_name_plural),
            "has_add_permission": self.has_add_permission(request),
            "checkbox": helpers.ACTION_CHECKBOX_NAME,
            **(extra_context or {}),
        }  # fmt: skip
        return self.page(request, self.change_list_template, context)

    def listing(self, request: HttpRequest) -> List:
        """Return what the list shows: all rows that match, for they are few."""
        query, source = Query(request), source_of(request)
        everything = source.rows(self.model) if is_storable(query.term) else []
        rows = matching(everything, query.term, self.search_fields)
        names = [str(name) for name in self.get_list_display(request)]
        rows = ordered(rows, query.order, names, self.sort_keys)
        shown = List(self.opts, query, has_search=bool(self.search_fields), search_help=self.search_help_text)
        shown.result_count, shown.total = len(rows), len(everything)
        names_of = self.opts.verbose_name if len(rows) == 1 else self.opts.verbose_name_plural
        shown.count_words = f"{len(rows):,} {names_of}"
        self.fill(request, shown, [(str(row.pk), row) for row in rows])
        return shown

    def fill(self, request: HttpRequest, shown: List, rows: Any) -> None:
        """Make the rows of a list: key and object of each are given."""
        preserved = self.get_preserved_filters(request)
        links = [
            (key, with_filters(page_url(self.admin_site, self.row_model(row), key), preserved), row)
            for key, row in rows
        ]
        shown.fill(links, self.columns(request, shown.query))

    def row_model(self, row: Any) -> type[models.Model]:
        return self.model

    def columns(self, request: HttpRequest, query: Query) -> list[Column]:
        found = []
        for number, name in enumerate(self.get_list_display(request), 1):
            method = getattr(self, str(name), None)
            cell = method or partial(_value, str(name))
            label = label_for_field(str(name), self.model, self)
            url = order = ""
            if name in self.sort_keys:
                order = {str(number): "ascending", f"-{number}": "descending"}.get(query.order, "")
                url = query.url(o=f"-{number}" if order == "ascending" else str(number))
            found.append(Column(str(name), label, cell, url, order))
        return found

    def act(self, request: HttpRequest) -> HttpResponse:
        """Do what was chosen in the list to the rows that were chosen."""
        name, keys = request.POST.get("action", ""), request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)
        actions = self.get_actions(request)
        if name not in actions:
            self.message_user(request, gettext("No action selected."), messages.WARNING)
        elif not keys:
            words = gettext("Items must be selected in order to perform actions on them. No items have been changed.")
            self.message_user(request, words, messages.WARNING)
        else:
            action: Any = actions[name]
            # Django 6.1 made an object of what was a tuple.
            function = action.func if django.VERSION >= (6, 1) else action[0]
            if isinstance(response := function(self, request, self.chosen(request, keys)), HttpResponse):
                return response
        return HttpResponseRedirect(request.get_full_path())

    def chosen(self, request: HttpRequest, keys: Any) -> Any:
        """Return what an action gets: the rows with these keys, or all that match."""
        is_all = request.POST.get("select_across") == "1"
        rows = matching(source_of(request).rows(self.model), Query(request).term, self.search_fields)
        return [row for row in rows if is_all or str(row.pk) in keys]

    # Pages of one row

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        context = {**self.source_context(request), **(extra_context or {})}
        return super().changeform_view(request, object_id, form_url, context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().history_view(request, object_id, {**self.source_context(request), **(extra_context or {})})

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> M | None:
        source = source_of(request)
        key = source.key(source.bare(object_id))
        return next((row for row in source.rows(self.model) if str(row.pk) == key), None)

    def get_preserved_filters(self, request: HttpRequest) -> str:
        # The way back leads to the list of the same store, also from an address without the parameters of a list.
        params = source_of(request).params
        return super().get_preserved_filters(request) or (
            urlencode({"_changelist_filters": urlencode(params)}) if params else ""
        )


class ReadOnlyAdmin(SourceAdmin[M]):
    """Show rows to users with Django's view permission; no form changes any.

    The engine writes rows, with statements that know about claims and wake-ups. A form would not, and a form for a task's name
    and arguments would let its user run any task.
    """

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        # Django's own lets users with the change permission view too; here nothing can be changed, so it does not count.
        return may_view(request, self.model)


def _value(name: str, row: Any) -> Any:
    return getattr(row, name)
