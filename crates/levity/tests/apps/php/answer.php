<?php
// Answers as the query says: status, header[] (whole lines, X-Sendfile and its kin among them), body,
// and as many further bytes as zeros.
http_response_code((int) ($_GET['status'] ?? 200));
foreach ($_GET['header'] ?? [] as $line) {
    header($line, false);
}
echo $_GET['body'] ?? '';
for ($left = (int) ($_GET['zeros'] ?? 0); $left > 0; $left -= 65536) {
    echo str_repeat("\0", min($left, 65536));
}
