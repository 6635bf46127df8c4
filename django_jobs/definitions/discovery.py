"""Which jobs a worker would know: those declared once every app's job modules are imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.utils.module_loading import autodiscover_modules

from django_jobs import conf
from django_jobs.definitions.registered import registry
from django_jobs.errors import NotDiscoverable

if TYPE_CHECKING:
    from django_jobs.definitions.declared import Definition

_known: frozenset[str] | None = None
_allowed: set[str] = set()


def autodiscover() -> None:
    """Imports the job modules of every installed app (``jobs.py``, ``tasks.py``, ``backfills.py``).

    Web processes and workers both do this when Django starts; what is declared by then, there or
    in what those modules import, is what workers can run. With settings that cannot be read it
    imports nothing: the system checks name the fault, and every use of a job raises it.
    """
    global _known
    if conf.fault() is not None:
        return
    autodiscover_modules(*conf.current().autodiscover)
    _known = frozenset(registry())


def allow(module: str) -> None:
    """Lets jobs be enqueued that ``module`` declares although workers do not import it.

    Only for tests that run their jobs in their own process.
    """
    _allowed.add(module)


def check_discoverable(definition: Definition[Any, Any]) -> None:
    """Raises ``NotDiscoverable`` for a job that no worker would know.

    Such a job is declared in a module that was imported later or only here, for example a view, a
    management command or ``__main__``. Enqueued, it would wait for ever. A job counts as known
    when it was declared by the end of ``autodiscover()``, wherever that was, or when its module is
    itself a job module of an app (it may have been reloaded).
    """
    if _known is not None and definition.name in _known and definition.module != "__main__":
        return
    if definition.module in _allowed or definition.module in _job_modules():
        return
    wanted = " or ".join(f"{name}.py" for name in conf.current().autodiscover)
    raise NotDiscoverable(
        f"{definition.name}: workers do not import {definition.module}, so they would not know "
        f"this job. Move it to {wanted} of an installed app, or import its module there."
    )


def _job_modules() -> set[str]:
    suffixes = conf.current().autodiscover
    return {f"{app.name}.{suffix}" for app in apps.get_app_configs() for suffix in suffixes}
