<?php
// Complains to the log of the server before, within and behind its answer.
error_log('before the answer');
echo 'an answer';
flush();
error_log('within the answer');
echo ' and its rest';
flush();
error_log($_GET['say'] ?? 'behind the answer');
