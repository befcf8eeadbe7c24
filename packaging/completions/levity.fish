# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_levity_global_optspecs
    string join \n h/help V/version
end

function __fish_levity_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_levity_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_levity_using_subcommand
    set -l cmd (__fish_levity_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c levity -n "__fish_levity_needs_command" -s h -l help -d 'Print help'
complete -c levity -n "__fish_levity_needs_command" -s V -l version -d 'Print version'
complete -c levity -n "__fish_levity_needs_command" -f -a "serve" -d 'Serve a folder or a single file, without configuration'
complete -c levity -n "__fish_levity_needs_command" -f -a "run" -d 'Serve the sites of a configuration'
complete -c levity -n "__fish_levity_needs_command" -f -a "check" -d 'Report every error in a configuration'
complete -c levity -n "__fish_levity_needs_command" -f -a "certs" -d 'List the certificates of a configuration: names, source, end, and what has failed'
complete -c levity -n "__fish_levity_needs_command" -f -a "explain" -d 'Say what decides about a request: site, route, gates, file, headers'
complete -c levity -n "__fish_levity_needs_command" -f -a "precompress" -d 'Write compressed variants beside the files of a folder, for `precompressed`'
complete -c levity -n "__fish_levity_needs_command" -f -a "reload" -d 'Have a running server read its configuration again'
complete -c levity -n "__fish_levity_needs_command" -f -a "health" -d 'Ask a running server whether its event loops answer'
complete -c levity -n "__fish_levity_needs_command" -f -a "passwd" -d 'Print a line with a user and a hashed password, for the file that `basic_auth` names'
complete -c levity -n "__fish_levity_needs_command" -f -a "mailbox" -d 'Send to mailboxes of a running server, print what they get, or list them'
complete -c levity -n "__fish_levity_needs_command" -f -a "top" -d 'Show the figures of a running server every second; q or Ctrl-C quits'
complete -c levity -n "__fish_levity_needs_command" -f -a "timing" -d 'Analyse a JSON access log: where the time of requests was spent'
complete -c levity -n "__fish_levity_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c levity -n "__fish_levity_using_subcommand serve" -l host -d 'A further host name to answer to, besides localhost and IP addresses; may be repeated. Without it, every name is answered if other machines can connect' -r
complete -c levity -n "__fish_levity_using_subcommand serve" -s p -l port -d 'The port of each `--listen` without one; without `--listen`, the port of 127.0.0.1' -r
complete -c levity -n "__fish_levity_using_subcommand serve" -l listen -d 'The address for clients: PORT, :PORT, ADDRESS, ADDRESS:PORT, [IPv6]:PORT or unix:PATH; may be repeated. Default: 127.0.0.1:8080, or the listeners in the file of `levity run`' -r
complete -c levity -n "__fish_levity_using_subcommand serve" -l engine -d 'The disk engine: auto, threads, io_uring, linux-aio, readahead, posix-aio, sendfile' -r
complete -c levity -n "__fish_levity_using_subcommand serve" -l workers -d 'The number of event loops. Default: one per core, or the number in the file of `levity run`' -r
complete -c levity -n "__fish_levity_using_subcommand serve" -l spa -d 'Serve a single-page application: paths that name no file get /index.html, and folders are not listed. A name with an extension gets it only if the client wants HTML'
complete -c levity -n "__fish_levity_using_subcommand serve" -l tls -d 'Encrypt connections, with a certificate of this machine that browsers accept once they trust its authority'
complete -c levity -n "__fish_levity_using_subcommand serve" -s v -l verbose -d 'Report the disk engines and the abilities of each file system at the start'
complete -c levity -n "__fish_levity_using_subcommand serve" -s h -l help -d 'Print help'
complete -c levity -n "__fish_levity_using_subcommand run" -s c -l config -d 'The configuration file, as an option' -r -F
complete -c levity -n "__fish_levity_using_subcommand run" -l listen -d 'The address for clients: PORT, :PORT, ADDRESS, ADDRESS:PORT, [IPv6]:PORT or unix:PATH; may be repeated. Default: 127.0.0.1:8080, or the listeners in the file of `levity run`' -r
complete -c levity -n "__fish_levity_using_subcommand run" -l engine -d 'The disk engine: auto, threads, io_uring, linux-aio, readahead, posix-aio, sendfile' -r
complete -c levity -n "__fish_levity_using_subcommand run" -l workers -d 'The number of event loops. Default: one per core, or the number in the file of `levity run`' -r
complete -c levity -n "__fish_levity_using_subcommand run" -s v -l verbose -d 'Report the disk engines and the abilities of each file system at the start'
complete -c levity -n "__fish_levity_using_subcommand run" -s h -l help -d 'Print help'
complete -c levity -n "__fish_levity_using_subcommand check" -s c -l config -d 'The configuration file, as an option' -r -F
complete -c levity -n "__fish_levity_using_subcommand check" -l env-file -d 'Take values of `${NAME}` from the lines NAME=VALUE of this file; others are those of the environment' -r -F
complete -c levity -n "__fish_levity_using_subcommand check" -l user -d 'Note what the user NAME cannot read, write or connect to' -r
complete -c levity -n "__fish_levity_using_subcommand check" -l json -d 'Print JSON: `ok`, `problems` and `notes`; `ok` is true if the exit status is 0'
complete -c levity -n "__fish_levity_using_subcommand check" -l strict -d 'Exit with 78 also if there is any note'
complete -c levity -n "__fish_levity_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c levity -n "__fish_levity_using_subcommand certs" -s c -l config -d 'The configuration file, as an option' -r -F
complete -c levity -n "__fish_levity_using_subcommand certs" -l env-file -d 'Take values of `${NAME}` from the lines NAME=VALUE of this file; others are those of the environment' -r -F
complete -c levity -n "__fish_levity_using_subcommand certs" -l retry -d 'Try again to get certificates for these names, or for all that have failed' -r
complete -c levity -n "__fish_levity_using_subcommand certs" -l json -d 'Print JSON'
complete -c levity -n "__fish_levity_using_subcommand certs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c levity -n "__fish_levity_using_subcommand explain" -s c -l config -d 'The configuration file [default: /etc/levity/levity.toml]' -r -F
complete -c levity -n "__fish_levity_using_subcommand explain" -l env-file -d 'Take values of `${NAME}` from the lines NAME=VALUE of this file; others are those of the environment' -r -F
complete -c levity -n "__fish_levity_using_subcommand explain" -s X -l method -d 'The method' -r
complete -c levity -n "__fish_levity_using_subcommand explain" -s H -l header -d 'A header of the request; may be repeated' -r
complete -c levity -n "__fish_levity_using_subcommand explain" -l client -d 'The address of the client' -r
complete -c levity -n "__fish_levity_using_subcommand explain" -l listen -d 'The listener that the client connects to. Default: that with the port of the URL, else the first in the file that has TLS for https:// and none for http://' -r
complete -c levity -n "__fish_levity_using_subcommand explain" -l json -d 'Print JSON'
complete -c levity -n "__fish_levity_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c levity -n "__fish_levity_using_subcommand precompress" -s c -l config -d 'The configuration of the server: what it keeps from clients, such as keys and passwords, gets no variants' -r -F
complete -c levity -n "__fish_levity_using_subcommand precompress" -l env-file -d 'Take values of `${NAME}` from the lines NAME=VALUE of this file; others are those of the environment' -r -F
complete -c levity -n "__fish_levity_using_subcommand precompress" -l codings -d 'The codings, separated by commas' -r
complete -c levity -n "__fish_levity_using_subcommand precompress" -l force -d 'Make variants anew that are up to date'
complete -c levity -n "__fish_levity_using_subcommand precompress" -l prune -d 'Remove variants that are outdated or save too little, and that no better one replaces'
complete -c levity -n "__fish_levity_using_subcommand precompress" -l dry-run -d 'List what would be written or removed, and change nothing. Compresses, to find out what it saves'
complete -c levity -n "__fish_levity_using_subcommand precompress" -l check -d 'Exit with status 1 if a variant is missing or outdated, list such ones, and change nothing'
complete -c levity -n "__fish_levity_using_subcommand precompress" -s v -l verbose -d 'Print a line for each variant that is written or removed'
complete -c levity -n "__fish_levity_using_subcommand precompress" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c levity -n "__fish_levity_using_subcommand reload" -s c -l config -d 'The same, as an option' -r -F
complete -c levity -n "__fish_levity_using_subcommand reload" -l control -d 'The socket, without a configuration file: unix:PATH' -r
complete -c levity -n "__fish_levity_using_subcommand reload" -l env-file -d 'Take values of `${NAME}` from the lines NAME=VALUE of this file; others are those of the environment' -r -F
complete -c levity -n "__fish_levity_using_subcommand reload" -l wait -d 'Wait for the outcome, and print why the server keeps its old configuration'
complete -c levity -n "__fish_levity_using_subcommand reload" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c levity -n "__fish_levity_using_subcommand health" -s c -l config -d 'The same, as an option' -r -F
complete -c levity -n "__fish_levity_using_subcommand health" -l control -d 'The socket, without a configuration file: unix:PATH' -r
complete -c levity -n "__fish_levity_using_subcommand health" -l env-file -d 'Take values of `${NAME}` from the lines NAME=VALUE of this file; others are those of the environment' -r -F
complete -c levity -n "__fish_levity_using_subcommand health" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c levity -n "__fish_levity_using_subcommand passwd" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and not __fish_seen_subcommand_from send tail list help" -s h -l help -d 'Print help'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and not __fish_seen_subcommand_from send tail list help" -f -a "send" -d 'Send a message; without TEXT, standard input'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and not __fish_seen_subcommand_from send tail list help" -f -a "tail" -d 'Print messages as they come, a line of JSON each; connects again when the connection ends'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and not __fish_seen_subcommand_from send tail list help" -f -a "list" -d 'List the boxes of a set, with their messages, bytes and receivers; the URL is that of the route'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and not __fish_seen_subcommand_from send tail list help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from send" -l socket -d 'Connect to this Unix socket; the URL then says host and path only. At a `[[listen]]` with `publish = true`, the user of the server and root need no key' -r -F
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from send" -l key-file -d 'A file with the key of publishers in its first line' -r -F
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from send" -l event -d 'The name of the event' -r
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from send" -l id -d 'An id, under which a box takes one message only' -r
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from send" -l ttl -d 'How long the message is kept, such as 60s' -r
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from send" -l type -d 'The media type' -r
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from send" -s h -l help -d 'Print help'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from tail" -l socket -d 'Connect to this Unix socket; the URL then says host and path only. At a `[[listen]]` with `publish = true`, the user of the server and root need no key' -r -F
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from tail" -l key-file -d 'A file with the key of publishers in its first line' -r -F
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from tail" -l after -d 'Begin after this id, or with `earliest` or `new`' -r
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from tail" -l once -d 'Exit at the end of the connection'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from tail" -s h -l help -d 'Print help'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from list" -l socket -d 'Connect to this Unix socket; the URL then says host and path only. At a `[[listen]]` with `publish = true`, the user of the server and root need no key' -r -F
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from list" -l key-file -d 'A file with the key of publishers in its first line' -r -F
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from help" -f -a "send" -d 'Send a message; without TEXT, standard input'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from help" -f -a "tail" -d 'Print messages as they come, a line of JSON each; connects again when the connection ends'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the boxes of a set, with their messages, bytes and receivers; the URL is that of the route'
complete -c levity -n "__fish_levity_using_subcommand mailbox; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c levity -n "__fish_levity_using_subcommand top" -s c -l config -d 'Take the address from this configuration file' -r -F
complete -c levity -n "__fish_levity_using_subcommand top" -l env-file -d 'Take values of `${NAME}` from the lines NAME=VALUE of this file; others are those of the environment' -r -F
complete -c levity -n "__fish_levity_using_subcommand top" -l once -d 'Print one frame without colour and exit; the default if standard output is no terminal'
complete -c levity -n "__fish_levity_using_subcommand top" -s h -l help -d 'Print help'
complete -c levity -n "__fish_levity_using_subcommand timing" -l svg -d 'Write a picture of every wait, read and write over time' -r -F
complete -c levity -n "__fish_levity_using_subcommand timing" -l json -d 'Print JSON'
complete -c levity -n "__fish_levity_using_subcommand timing" -s h -l help -d 'Print help'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "serve" -d 'Serve a folder or a single file, without configuration'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "run" -d 'Serve the sites of a configuration'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "check" -d 'Report every error in a configuration'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "certs" -d 'List the certificates of a configuration: names, source, end, and what has failed'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "explain" -d 'Say what decides about a request: site, route, gates, file, headers'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "precompress" -d 'Write compressed variants beside the files of a folder, for `precompressed`'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "reload" -d 'Have a running server read its configuration again'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "health" -d 'Ask a running server whether its event loops answer'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "passwd" -d 'Print a line with a user and a hashed password, for the file that `basic_auth` names'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "mailbox" -d 'Send to mailboxes of a running server, print what they get, or list them'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "top" -d 'Show the figures of a running server every second; q or Ctrl-C quits'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "timing" -d 'Analyse a JSON access log: where the time of requests was spent'
complete -c levity -n "__fish_levity_using_subcommand help; and not __fish_seen_subcommand_from serve run check certs explain precompress reload health passwd mailbox top timing help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c levity -n "__fish_levity_using_subcommand help; and __fish_seen_subcommand_from mailbox" -f -a "send" -d 'Send a message; without TEXT, standard input'
complete -c levity -n "__fish_levity_using_subcommand help; and __fish_seen_subcommand_from mailbox" -f -a "tail" -d 'Print messages as they come, a line of JSON each; connects again when the connection ends'
complete -c levity -n "__fish_levity_using_subcommand help; and __fish_seen_subcommand_from mailbox" -f -a "list" -d 'List the boxes of a set, with their messages, bytes and receivers; the URL is that of the route'
