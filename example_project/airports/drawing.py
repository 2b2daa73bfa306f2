"""Pictures, drawn with Pillow from nothing but coordinates."""

from collections.abc import Iterable
from functools import cache
from io import BytesIO
from math import cos, hypot, radians
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from airports.models import Airport

NIGHT = (11, 29, 46)
DUSK = (24, 58, 84)
LIGHT = (255, 210, 125)
DIM = (125, 148, 160)
PAPER = (250, 246, 238)
INK = (16, 34, 48)

WIDTH, HEIGHT, CAPTION = 1280, 860, 180
VIEW = HEIGHT - CAPTION
"""The part of a postcard that is a map."""
REACH = 4.5
"""How many degrees north and south of its airport a postcard reaches."""


def reach(airport: Airport) -> tuple[float, float]:
    """Return how far a postcard reaches, in degrees of latitude and of longitude."""
    return REACH, min(180.0, REACH * WIDTH / VIEW / _shrink(airport))


def world_map(coordinates: Iterable[tuple[float, float]], width: int = 2000) -> bytes:
    """Return a PNG, transparent but for one dot per airport."""
    scale = width / 360
    image = Image.new("RGBA", (width, round(145 * scale)), (*LIGHT, 0))
    draw = ImageDraw.Draw(image)
    for latitude, longitude in coordinates:
        _circle(draw, (longitude + 180) * scale, (85 - latitude) * scale, 1.3, fill=(*LIGHT, 170))
    return _encoded(image, "PNG")


def postcard(airport: Airport, neighbours: Iterable[Airport]) -> bytes:
    """Return a JPEG of 1280 by 860 pixels: the airport, its neighbours, and its name below."""
    view = _sky().copy()
    draw = ImageDraw.Draw(view)
    middle_x, middle_y = WIDTH / 2, VIEW / 2
    scale = VIEW / (2 * REACH)

    for ring in range(1, 5):
        radius = ring * VIEW / 5.2
        _circle(draw, middle_x, middle_y, radius, outline=(46, 84, 110))

    labelled = [(middle_x, middle_y)]
    small = _font(19)
    for other in neighbours:
        x = middle_x + (other.longitude - airport.longitude) * _shrink(airport) * scale
        y = middle_y - (other.latitude - airport.latitude) * scale
        if not (8 < x < WIDTH - 8 and 8 < y < VIEW - 8):
            continue
        _circle(draw, x, y, 3.2 if other.iata else 1.6, fill=LIGHT if other.iata else DIM)
        if other.iata and x < WIDTH - 60 and all(hypot(x - a, y - b) > 62 for a, b in labelled):
            labelled.append((x, y))
            draw.text((x + 8, y), other.iata, font=small, fill=(196, 208, 214), anchor="lm")

    _circle(draw, middle_x, middle_y, 22, outline=LIGHT, width=4)
    _circle(draw, middle_x, middle_y, 8, fill=(255, 255, 255))

    card = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    card.paste(view, (0, 0))
    draw = ImageDraw.Draw(card)
    draw.text((48, VIEW + 44), _shortened(airport.name, 46), font=_font(42), fill=INK)
    draw.text((48, VIEW + 106), airport.place, font=_font(26), fill=(96, 108, 116))
    draw.text((WIDTH - 48, VIEW + 38), airport.code, font=_font(96), fill=(196, 84, 46), anchor="ra")
    return _encoded(card, "JPEG", quality=86)


def resized(original: Path, width: int) -> bytes:
    with Image.open(original) as image:
        image.thumbnail(
            (width, width)
        )  # lets JPEG decode at a fraction of the size, several times faster than resize()
        return _encoded(image, "JPEG", quality=84)


def _shrink(airport: Airport) -> float:
    """How much narrower a degree of longitude is here than at the equator: meridians meet at the poles."""
    return max(0.05, cos(radians(airport.latitude)))


@cache
def _sky() -> Image.Image:
    size = (WIDTH, VIEW)
    gradient = Image.linear_gradient("L").resize(size)
    return Image.composite(Image.new("RGB", size, DUSK), Image.new("RGB", size, NIGHT), gradient)


def _circle(draw: ImageDraw.ImageDraw, x: float, y: float, radius: float, **style: Any) -> None:
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), **style)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)  # the one that Pillow brings along


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _encoded(image: Image.Image, kind: str, **options: int) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
