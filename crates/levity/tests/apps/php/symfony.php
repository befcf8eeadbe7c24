<?php
// A file through Symfony: by X-Sendfile or X-Accel-Redirect if the server says X-Sendfile-Type.
require 'Symfony/Component/HttpFoundation/autoload.php';

use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\Request;

BinaryFileResponse::trustXSendfileTypeHeader();
$request = Request::createFromGlobals();
$response = new BinaryFileResponse($request->query->get('path'));
$response->headers->set('Content-Type', 'text/x-symfony');
$response->prepare($request);
$response->send();
