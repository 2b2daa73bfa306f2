"""What ``bench compare`` is made of: servers and their meters, drivers as processes, scenarios, figures and their drawing."""
