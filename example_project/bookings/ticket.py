"""The ticket, a PDF of one page."""

import unicodedata

from fpdf import FPDF

from bookings.models import Booking

ORANGE, NIGHT, GREY = (196, 84, 46), (11, 29, 46), (110, 120, 128)


def as_pdf(booking: Booking) -> bytes:
    pdf = FPDF(orientation="landscape", format=(99, 210))
    pdf.set_auto_page_break(False)
    pdf.set_margin(0)
    pdf.set_title(f"Ticket {booking.reference}")
    pdf.add_page()

    pdf.set_fill_color(*NIGHT)
    pdf.rect(0, 0, 210, 19, style="F")
    _write(pdf, 10, 5, "FERNWEH", size=18, color=(255, 210, 125), style="B")
    _write(pdf, 140, 5, "BOARDING PASS", size=12, color=(255, 255, 255), width=60, align="R")

    for x, label, airport in ((10, "FROM", booking.origin), (112, "TO", booking.destination)):
        _write(pdf, x, 25, label, size=8, color=GREY)
        _write(pdf, x, 30, airport.code, size=40, color=ORANGE, style="B")
        _write(pdf, x, 46, airport.name[:44], size=10, color=NIGHT, style="B")
        _write(pdf, x, 51, airport.place[:50], size=9, color=GREY)
    pdf.set_draw_color(*GREY)
    pdf.set_line_width(0.4)
    pdf.line(70, 37, 100, 37)
    pdf.line(97, 35, 100, 37)
    pdf.line(97, 39, 100, 37)

    pdf.set_dash_pattern(dash=1.5, gap=1.5)
    pdf.line(10, 62, 200, 62)
    facts = (
        ("PASSENGER", booking.traveller[:34], 10),
        ("DATE", f"{booking.departs_on:%d %b %Y}", 80),
        ("DISTANCE", f"{booking.kilometres:,} km", 115),
        ("PRICE", f"EUR {booking.price:,}", 145),
        ("REFERENCE", booking.reference, 174),
    )
    for label, value, x in facts:
        _write(pdf, x, 68, label, size=8, color=GREY)
        _write(pdf, x, 73, value, size=12, color=NIGHT, style="B")
    _write(pdf, 10, 88, "Written by a djqueue job, a moment after you booked.", size=8, color=GREY)
    return bytes(pdf.output())


def _write(
    pdf: FPDF,
    x: float,
    y: float,
    text: str,
    *,
    size: int,
    color: tuple[int, int, int],
    style: str = "",
    width: float = 90,
    align: str = "L",
) -> None:
    pdf.set_font("Helvetica", style, size)
    pdf.set_text_color(*color)
    pdf.set_xy(x, y)
    pdf.cell(width, size * 0.42, _printable(text), align=align)


def _printable(text: str) -> str:
    """Replace what the built-in fonts cannot write: ń by n, what has no base letter by a question mark."""
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        text = unicodedata.normalize("NFKD", text.replace("\N{EN DASH}", "-"))
        text = "".join(c for c in text if not unicodedata.combining(c))
        text = text.encode("latin-1", "replace").decode("latin-1")
    return text
