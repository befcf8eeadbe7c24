"""A Flask application that leaves files to the server: /flask?path=FILE."""

from flask import Flask, request, send_file

application = Flask(__name__)
application.config["USE_X_SENDFILE"] = True


@application.route("/flask")
def send():
    return send_file(request.args["path"])
