from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from airports.dataset import FAMOUS
from airports.models import Airport
from airports.tasks import draw_postcard, fetch_weather
from bookings.models import Booking
from djqueue.api import JobFilter
from djqueue.jobs.states import FINAL_STATES
from djqueue.stores import store


def home(request: HttpRequest) -> HttpResponse:
    admin = reverse("admin:index")
    jobs = store().engine
    airports = Airport.objects.aggregate(count=Count("*"), countries=Count("country", distinct=True))
    context = {
        "counts": [
            ("airports", airports["count"], reverse("airports")),
            ("countries", airports["countries"], reverse("airports")),
            ("bookings", Booking.objects.count(), f"{admin}bookings/booking/"),
            ("jobs to do", sum(sum(queue.states.values()) for queue in jobs.counts()), f"{admin}djqueue/job/"),
            ("jobs done", jobs.count(JobFilter(states=FINAL_STATES)).count, f"{admin}djqueue/finishedjob/"),
        ],
        "postcards": (
            Airport.objects.exclude(postcard="")
            .annotate(is_unknown=~Q(iata__in=FAMOUS))
            .order_by("is_unknown", "iata")[:12]
        ),
        "has_map": (settings.MEDIA_ROOT / "world.png").exists(),
    }
    return render(request, "airports/home.html", context)


def airport_list(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "").strip()
    airports = Airport.objects.annotate(is_small=Q(iata="")).order_by("is_small", "name")
    if query:
        words = Q(name__icontains=query) | Q(city__icontains=query)
        airports = airports.filter(words | Q(icao=query.upper()) | Q(iata=query.upper()))
    page = Paginator(airports, 30).get_page(request.GET.get("page"))
    return render(request, "airports/list.html", {"page": page, "query": query})


def airport(request: HttpRequest, icao: str) -> HttpResponse:
    airport = get_object_or_404(Airport, pk=icao.upper())
    if request.method == "POST":
        draw_postcard.enqueue(airport.pk)
        fetch_weather.enqueue(airport.pk)
        messages.success(request, "Two jobs are on their way: a postcard and the weather.")
        return redirect(airport)
    return render(request, "airports/detail.html", {"airport": airport})
