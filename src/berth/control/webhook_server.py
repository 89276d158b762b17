"""The admission server as a whole: certificate, listener, registration; open on every replica.

--webhook-cert-dir given     serves what is there (cert-manager renews it, and fills in the CA)
--webhook-url given          outside a cluster: a CA of this process, registered by URL, taken away at the end
neither                      a CA shared by all replicas through a Secret, registered by Service

--webhook-client-ca given    beside any of them: only clients with a certificate of that CA are served
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from berth.control.admission import Admission, Handler, Limits
from berth.control.ca_store import OwnKeyring, Recipe, SharedKeyring
from berth.control.certs import Certificates, ClientAuthority, Directory, Source
from berth.control.listen import Listen, Server
from berth.control.webhooks import Plan, Registration, Service, Target, Url, Webhook
from berth.errors import UserError
from berth.kube.client import Client
from berth.metrics import Metrics
from berth.settings import Settings

SECRET = "berth-webhook-certificate"
PORT = 9443


class WebhookServer:
    def __init__(self, settings: Settings, client: Client, metrics: Metrics) -> None:
        self._settings = settings
        self._client = client
        self._metrics = metrics
        self._certificates = Certificates(
            self._source(), clients=self._clients(), tell=metrics.certificate_ends, dismiss=self._dismiss
        )
        self._server: Server | None = None
        self._registrations: list[Registration] = []
        self.port = 0

    async def open(
        self, stack: AsyncExitStack, routes: Mapping[str, Handler], plans: Mapping[str, tuple[Webhook, ...]]
    ) -> None:
        """Listen first, register then: nobody is asked to wait for a server that is not there."""
        await self._certificates.refresh()
        limits = Limits(deadline_seconds=self._settings.webhook_deadline_seconds)
        admission = Admission(routes, self._metrics, limits)
        server = await admission.serve(self._listen(), self._certificates.context)
        stack.push_async_callback(server.stop)
        self.port = server.port
        self._server = server
        stack.push_async_callback(self._withdraw)
        for name, webhooks in plans.items():
            registration = Registration(self._client, Plan(name, webhooks, self._target()))
            self._registrations.append(registration)
            if self._settings.webhook_url:  # the only process there is; nobody waits for a lease to be asked
                await registration.sync(self._certificates.bundle)

    async def _withdraw(self) -> None:
        """All at once: together they have the time that one of them has."""
        async with asyncio.TaskGroup() as group:
            for registration in self._registrations:
                group.create_task(registration.remove())

    def tasks(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """What every replica does."""
        return (self._certificates.run(),)

    def leading_tasks(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Registering is the leader's: during an upgrade old and new would overwrite each other's."""
        return tuple(registration.run(self._certificates) for registration in self._registrations)

    def _dismiss(self) -> None:
        """Who was let in under the authority of before has to show a certificate of the new one."""
        if self._server is not None:
            self._server.hang_up()

    def not_ready(self) -> str:
        return "" if self.port else "the admission server does not listen yet"

    def _listen(self) -> Listen:
        host, port = self._url()
        return Listen(host, self._settings.webhook_port or port or PORT)

    def _url(self) -> tuple[str, int]:
        """Host and port of --webhook-url; nothing where there is none."""
        text = self._settings.webhook_url
        try:
            url = urlsplit(text)
            host, port = url.hostname or "", url.port or 0
        except ValueError:
            host, port = "", 0
        if text and not (text.startswith("https://") and host):
            raise UserError(
                f"--webhook-url must be https://host:port, for example https://127.0.0.1:9443, not {text!r}."
            )
        return host, port

    def _target(self) -> Target:
        if self._settings.webhook_url:
            return Url(self._settings.webhook_url)
        namespace, name = self._service()
        return Service(namespace, name)

    def _service(self) -> tuple[str, str]:
        namespace, _, name = self._settings.webhook_service.partition("/")
        if not namespace or not name:
            text = self._settings.webhook_service
            raise UserError(f"--webhook-service must be namespace/name of a Service, not {text!r}.")
        return namespace, name

    def _source(self) -> Source:
        if self._settings.webhook_cert_dir is not None:
            return Directory(self._settings.webhook_cert_dir)
        if self._settings.webhook_url:
            return OwnKeyring(Recipe((self._url()[0], "localhost")))
        namespace, name = self._service()
        names = (f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local", name)
        return SharedKeyring(self._client, namespace, SECRET, Recipe(names))

    def _clients(self) -> ClientAuthority | None:
        path = self._settings.webhook_client_ca
        return None if path is None else ClientAuthority(path, "--webhook-client-ca")
