import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command

from fernweh.database import parse_url


def test_a_database_url_is_read():
    entry = parse_url("postgresql://ada:p%40ss@db.example:5433/shop?sslmode=require")

    assert entry["NAME"], entry["USER"] == ("shop", "ada")
    assert (entry["PASSWORD"], entry["HOST"], entry["PORT"]) == ("p@ss", "db.example", "5433")
    assert entry["OPTIONS"] == {"sslmode": "require"}


def test_another_database_is_refused():
    with pytest.raises(ImproperlyConfigured, match="postgresql://"):
        parse_url("mysql://127.0.0.1/shop")


@pytest.mark.django_db
def test_no_migration_is_missing():
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
