<?php
// What arrived of the body, without holding it in memory.
$body = fopen('php://input', 'rb');
$hash = hash_init('sha256');
$length = hash_update_stream($hash, $body);
header('Content-Type: application/json');
echo json_encode(['length' => $length, 'sha256' => hash_final($hash)]);
