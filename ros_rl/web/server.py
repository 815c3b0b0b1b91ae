"""Opens viser's web server for this machine alone, behind a secret in its address.

viser itself listens on every interface, moves to another port when its own is taken, and lets in whoever comes. Here the
socket is made first and handed to it, and every request passes the doorkeeper: pages and websocket handshakes alike.
"""

import errno
import hmac
import http
import secrets
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ros_rl.errors import UserError
from ros_rl.web import heartbeat
from ros_rl.web.pilot import Pilot

if TYPE_CHECKING:
    import viser

HOST = "127.0.0.1"
_NEEDED = "viser>=1.1.1,<1.2"  # its server is guarded from within
_TOKEN_BYTES = 16
_HEADERS = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "DENY"}
_making = threading.Lock()  # held while viser's call of websockets is intercepted, which is so for the whole process


def new_token() -> str:
    """Returns a secret for an address, 22 characters."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def check_can_serve(port: int) -> None:
    """Checks what a page needs before anything is started for it.

    Raises:
        UserError: viser is not installed, or the port is taken.
    """
    _viser()
    listen(port).close()


def listen(port: int) -> socket.socket:
    """Returns a socket bound to a port of this machine's own interface; 0: any free port.

    Raises:
        UserError: the port cannot be had.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        # A bound socket that does not listen yet keeps nobody else from listening on the same port.
        listener.listen()
    except OSError as error:
        listener.close()
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be opened ({error.strerror})"
        raise UserError(f"web_port {port} {why}; choose another with web_port:=PORT") from None
    return listener


class WebServer:
    """viser's server behind its address.

    Attributes:
        viser: the server, to build a page with.
        url: the address, secret included.
    """

    def __init__(self, port: int, token: str, pilot: Pilot):
        """Starts to serve an empty page.

        Args:
            port: of 127.0.0.1; 0: any free one.
            token: the secret.
            pilot: is told that pages live, which keys are held on them, and when they are gone.

        Raises:
            UserError: viser is not installed or not one that can be guarded, or the port cannot be had.
        """
        module = _viser()
        listener = listen(port)
        self.url = f"http://{HOST}:{listener.getsockname()[1]}/{token}/"
        try:
            self.viser: viser.ViserServer = _guarded(module, listener, token, pilot)
        except BaseException:
            listener.close()
            raise
        try:
            # viser would open a tunnel to a public address for whoever has the page.
            self.viser.gui.configure_theme(show_share_button=False, show_logo=False, control_width="large")
            for message in ("ShareUrlRequest", "ShareUrlDisconnect"):
                self.viser._websock_server.unregister_handler(getattr(module._messages, message))

            async def gone(client: Any) -> None:
                pilot.gone(client.client_id)

            self.viser.on_client_disconnect(gone)
        except BaseException as error:
            self.viser.stop()
            if isinstance(error, AttributeError | AssertionError):
                raise _other_viser(module) from None
            raise

    @property
    def clients(self) -> int:
        """How many pages are open."""
        return len(self.viser.get_clients())

    def stop(self) -> None:
        """Ends the server and its connections."""
        self.viser.stop()


def on_press(button: "viser.GuiButtonHandle", press: Callable[[], None]) -> None:
    """Calls `press` in the server's thread when a button is pressed on any page.

    viser's own `on_click` is not called for a page that has not told yet where it looks from, as one that draws nothing never does.
    """
    import viser

    async def receive(_: Any, message: Any) -> None:
        if message.uuid == button._impl.uuid and not button._impl.removed:
            press()

    button._impl.gui_api._websock_interface.register_handler(viser._messages.GuiUpdateMessage, receive)


def doorkeeper(token: str, handle: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a `process_request` of websockets that lets in only who knows the secret.

    A request is for ``/<token>`` or something below it; the handler then sees the path without the secret. Everything else
    is answered with 403, before a websocket is opened.

    Args:
        token: the secret.
        handle: the `process_request` behind it.
    """
    from websockets.datastructures import Headers
    from websockets.http11 import Response

    def process_request(connection: Any, request: Any) -> Any:
        path, question, query = request.path.partition("?")
        given, _, rest = path.removeprefix("/").partition("/")
        # Bytes that are no text are in the path as surrogates.
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode()):
            body = b"403: the address lacks its secret; use the whole address that the web node printed\n"
            headers = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
            return Response(http.HTTPStatus.FORBIDDEN, "Forbidden", Headers(headers | _HEADERS), body)
        request.path = f"/{rest}{question}{query}"
        response = handle(connection, request)
        if response is not None:
            response.headers.update(_HEADERS)
        return response

    return process_request


def _viser() -> Any:
    try:
        import viser
    except ImportError:
        raise UserError(f"web:=true needs viser: pip install '{_NEEDED}'") from None
    return viser


def _guarded(module: Any, listener: socket.socket, token: str, pilot: Pilot) -> Any:
    """Makes viser's server listen on a given socket, behind the doorkeeper, with the pages' beats beside its own connections.

    viser has no way to be told either, but makes one call of `websockets.asyncio.server.serve`, in the thread that it starts.
    """
    import rich
    import websockets.asyncio.server as websockets

    serve, guarded = websockets.serve, threading.Event()

    def serve_guarded(handler: Any, host: Any, port: Any, *, process_request: Any, **options: Any) -> Any:
        guarded.set()

        async def handle(connection: Any) -> None:
            await (heartbeat.listen(pilot, connection) if connection.request.path == heartbeat.PATH else handler(connection))

        return serve(handle, sock=listener, process_request=doorkeeper(token, heartbeat.with_script(process_request)), **options)

    rich.get_console().quiet = True  # viser prints an address without the secret
    with _making:
        websockets.serve = serve_guarded  # type: ignore[assignment, misc]
        try:
            server = module.ViserServer(host=HOST, port=listener.getsockname()[1], label="ros_rl", verbose=False)
        finally:
            websockets.serve = serve  # type: ignore[misc]
    if not guarded.is_set():
        server.stop()
        raise _other_viser(module)
    return server


def _other_viser(module: Any) -> UserError:
    return UserError(f"viser {module.__version__} starts its server in a way that cannot be guarded; pip install '{_NEEDED}'")
