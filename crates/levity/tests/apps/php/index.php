<?php
// A front controller: what PHP was told about the request.
header('Content-Type: application/json');
echo json_encode($_SERVER, JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE);
