from django.conf import settings
from django.contrib.auth import get_user_model

USERNAME = PASSWORD = "admin"


def create_login() -> bool:
    """Create or reset the login of the demonstration. Never outside DEBUG: everybody knows this password."""
    if not settings.DEBUG:
        return False
    user, _ = get_user_model().objects.get_or_create(
        username=USERNAME, defaults={"is_staff": True, "is_superuser": True, "email": "admin@fernweh.example"}
    )
    if not user.check_password(PASSWORD):
        user.set_password(PASSWORD)
        user.save(update_fields=["password"])
    return True
