"""A Django project that leaves files to the server: /django?backend=nginx&root=FOLDER&path=FILE.

It holds clients by GRIP too, /grip?hold=stream&channel=NAME, and publishes to them: POST /grip?control=URI&channel=NAME.
"""

import threading

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.test.utils import override_settings
from django.urls import path
from django_sendfile import sendfile
from django_sendfile.utils import _get_sendfile

# Settings belong to the process, and the test of each request wants others.
ONE_AT_A_TIME = threading.Lock()


def send(request):
    wanted = {
        "SENDFILE_BACKEND": "django_sendfile.backends." + request.GET["backend"],
        "SENDFILE_ROOT": request.GET["root"],
        "SENDFILE_URL": request.GET.get("url", "/protected"),
    }
    with ONE_AT_A_TIME, override_settings(**wanted):
        _get_sendfile.cache_clear()
        return sendfile(request, request.GET["path"])


def grip(request):
    import django_grip
    from gripcontrol import Channel, GripPubControl, HttpStreamFormat
    from pubcontrol import Item

    channels = request.GET.getlist("channel")
    if request.method == "POST":
        control = {"control_uri": request.GET["control"], "control_iss": "app", "key": GRIP_KEY}
        if "sender" in request.GET:
            item = Item(HttpStreamFormat(request.body.decode()), meta={"sender": request.GET["sender"]})
            GripPubControl(control).publish(channels[0], item, blocking=True)
            return HttpResponse("published")
        publish = getattr(GripPubControl(control), "publish_http_" + request.GET["to"])
        publish(channels[0], request.body.decode(), id=request.GET.get("id"), blocking=True)
        return HttpResponse("published")
    if not request.grip.signed:
        return HttpResponse("not through the server", status=501)
    channels = [Channel(name) for name in channels]
    for channel in channels:
        channel.filters = request.GET.getlist("filter")
    if request.GET["hold"] == "stream":
        django_grip.set_hold_stream(request, channels, "alive\n", 1)
        if "user" in request.GET:
            request.grip.instruct.meta["user"] = request.GET["user"]
        return HttpResponse("held\n", content_type="text/plain")
    django_grip.set_hold_longpoll(request, channels, timeout=int(request.GET["timeout"]))
    return HttpResponse("nothing new", content_type="text/plain")


urlpatterns = [path("django", send), path("grip", grip)]

# The key of the tests, which the server has too.
GRIP_KEY = "0123456789abcdef0123456789abcdef"

settings.configure(
    GRIP_PROXIES=[{"key": GRIP_KEY}],
    MIDDLEWARE=["django_grip.GripMiddleware"],
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of no value",
)
django.setup(set_prefix=False)
application = get_wsgi_application()
