from django.urls import path

from airports import views

urlpatterns = [
    path("", views.home, name="home"),
    path("airports/", views.airport_list, name="airports"),
    path("airports/<str:icao>/", views.airport, name="airport"),
]
