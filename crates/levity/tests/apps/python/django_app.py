"""A Django project that leaves files to the server: /django?backend=nginx&root=FOLDER&path=FILE."""

import threading

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
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


urlpatterns = [path("django", send)]

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of no value",
)
django.setup(set_prefix=False)
application = get_wsgi_application()
