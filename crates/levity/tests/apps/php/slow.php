<?php
// Says nothing for so many milliseconds; with "head", says so much at once.
if (isset($_GET['head'])) {
    echo 'begin ';
    flush();
}
usleep(1000 * (int) ($_GET['ms'] ?? 100));
echo 'done';
