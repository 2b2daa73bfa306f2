from django.urls import path

from bookings import views

urlpatterns = [
    path("new/", views.book, name="book"),
    path("<str:reference>/", views.booking, name="booking"),
    path("<str:reference>/progress/", views.progress, name="progress"),
]
