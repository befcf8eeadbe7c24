//! Configuration files of other servers, recognised by their lines.
//!
//! Read as TOML, each line of such a file would be a mistake of its own.

use std::ops::Range;

/// A server, and the test for lines that only its files have.
type Server = (&'static str, fn(&str) -> bool);

const SERVERS: [Server; 5] = [
    ("nginx", is_of_nginx),
    ("Caddy", is_of_caddy),
    ("lighttpd", is_of_lighttpd),
    ("the Apache HTTP server", is_of_apache),
    ("HAProxy", is_of_haproxy),
];

/// The server whose configuration `text` is, and the bytes of the first line that shows it; `None` when there is
/// none, and for a text with the heading of a table, as in every configuration of Levity.
pub(crate) fn recognise(text: &str) -> Option<(&'static str, Range<usize>)> {
    let lines = || lines(text).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    if lines().any(|(_, line)| line.starts_with('[')) {
        return None;
    }
    let count = |(_, is_of): &Server| lines().filter(|(_, line)| is_of(line)).count();
    // The first of those with as many.
    let (name, is_of) = SERVERS.into_iter().rev().max_by_key(count)?;
    let (start, line) = lines().find(|(_, line)| is_of(line))?;
    Some((name, start..start + line.len()))
}

/// The lines without the space around them, and where each begins.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |end, line| {
        let start = *end + (line.len() - line.trim_start().len());
        *end += line.len();
        Some((start, line.trim()))
    })
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

/// Whether the first word is one of the words `names` and no value is assigned to it, as in TOML.
fn is_directive(line: &str, names: &str) -> bool {
    let mut words = line.split_whitespace();
    let is_name = |word| names.split(' ').any(|name| name == word);
    words.next().is_some_and(is_name) && words.next() != Some("=")
}

/// `listen 80;`, `location / {`
fn is_of_nginx(line: &str) -> bool {
    const DIRECTIVES: &str = "\
        worker_processes include listen server_name root index try_files proxy_pass fastcgi_pass return access_log \
        error_log gzip sendfile user pid keepalive_timeout proxy_set_header add_header ssl_certificate \
        worker_connections grpc_pass";
    const BLOCKS: &str = "server location http events upstream stream map";
    let code = line
        .split_once(" #")
        .map_or(line, |(code, _)| code.trim_end());
    // A block may be a line.
    let is_block = |(name, _)| code.ends_with(['{', '}', ';']) && is_directive(name, BLOCKS);
    code.ends_with(';') && is_directive(code, DIRECTIVES)
        || code.split_once('{').is_some_and(is_block)
}

/// `example.org {`, `reverse_proxy localhost:3000`
fn is_of_caddy(line: &str) -> bool {
    const DIRECTIVES: &str = "\
        reverse_proxy file_server php_fastcgi encode handle handle_path respond redir root import templates \
        try_files tls basic_auth";
    let is_site = || {
        let address = first_word(line).trim_end_matches(',');
        line.ends_with('{')
            && (address.contains(['.', ':', '*']) || address == "localhost")
            && !address.contains(['$', '"', '=', '('])
    };
    !line.ends_with(';') && is_directive(line, DIRECTIVES) || is_site() || is_caddy_port(line)
}

/// The address of a file with one site and no braces.
fn is_caddy_port(line: &str) -> bool {
    let port = line.strip_prefix(':').or(line.strip_prefix("localhost:"));
    port.is_some_and(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `server.document-root = "/var/www"`, `$HTTP["host"] == "example.org" {`
fn is_of_lighttpd(line: &str) -> bool {
    const STARTS: &str = "\
        $HTTP[ $SERVER[ $REQUEST_HEADER[ include_shell server.document-root server.port server.modules \
        server.errorlog server.username server.groupname server.pid-file server.upload-dirs index-file.names \
        mimetype.assign url. static-file. dir-listing. accesslog.filename setenv. fastcgi.server proxy.server ssl.";
    STARTS.split(' ').any(|start| line.starts_with(start))
}

/// `<VirtualHost *:80>`, `DocumentRoot "/var/www"`
fn is_of_apache(line: &str) -> bool {
    const DIRECTIVES: &str = "\
        ServerRoot ServerName ServerAdmin ServerAlias DocumentRoot Listen LoadModule ErrorLog CustomLog LogLevel \
        Include IncludeOptional RewriteEngine RewriteRule ProxyPass AllowOverride Options Require DirectoryIndex";
    let is_section = || {
        let name = line.strip_prefix("</").or(line.strip_prefix('<'));
        line.ends_with('>')
            && name.is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
    };
    is_directive(line, DIRECTIVES) || is_section()
}

/// `frontend web`, `bind :80`
fn is_of_haproxy(line: &str) -> bool {
    const SECTIONS: &str = "frontend backend defaults global listen";
    const DIRECTIVES: &str = "bind default_backend use_backend balance mode maxconn";
    let words = line.split_whitespace().count();
    let is_plain = !line.ends_with(['{', ';']);
    let is_section = is_directive(line, SECTIONS) && words <= 2;
    // A block of nginx may be a line.
    let is_server = is_directive(line, "server") && words >= 3 && !line.contains('{');
    is_plain && (is_section || is_server || is_directive(line, DIRECTIVES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is_of(text: &str, server: &str, first: &str) {
        let (name, line) = recognise(text).expect(text);
        assert_eq!((name, &text[line]), (server, first));
    }

    #[test]
    fn of_nginx() {
        let whole = "user www-data;\nworker_processes auto;\ninclude /etc/nginx/modules-enabled/*.conf;\n\n\
                     events {\n\tworker_connections 768;\n\t# multi_accept on;\n}\n\nhttp {\n\tsendfile on;\n\
                     \ttypes_hash_max_size 2048;\n\tgzip on; # all\n}\n";
        is_of(whole, "nginx", "user www-data;");
        let site = "server {\n    listen 80 default_server;\n    server_name _;\n\n    location / {\n        \
                    try_files $uri $uri/ /index.html;\n    }\n    location ~ \\.php$ {\n        \
                    fastcgi_pass unix:/run/php.sock;\n    }\n}\n";
        is_of(site, "nginx", "server {");
    }

    #[test]
    fn of_nginx_in_a_line() {
        for line in [
            "server { listen 80; location / { proxy_pass http://127.0.0.1:3000; } }",
            "server{ listen 80; root /srv; }",
            "events {} http { server { listen 80; } }",
            "location / { grpc_pass grpc://127.0.0.1:50051; }",
        ] {
            is_of(line, "nginx", line);
            is_of(&format!("{line}\n"), "nginx", line);
        }
    }

    #[test]
    fn of_caddy() {
        is_of(
            "example.org\n\nroot * /var/www\nfile_server\n",
            "Caddy",
            "root * /var/www",
        );
        is_of(":8080\nfile_server browse\n", "Caddy", ":8080");
        is_of(
            "{\n\temail a@example.org\n}\n\nexample.org, www.example.org {\n\treverse_proxy localhost:3000\n\
             \tencode zstd gzip\n}\n",
            "Caddy",
            "example.org, www.example.org {",
        );
    }

    #[test]
    fn of_lighttpd() {
        is_of(
            "server.modules = (\n\t\"mod_access\",\n)\nserver.document-root = \"/var/www/html\"\n\
             $HTTP[\"host\"] == \"a.example\" {\n\turl.redirect = ( \"\" => \"/b\" )\n}\n",
            "lighttpd",
            "server.modules = (",
        );
        // It is TOML, but of keys that are another server's.
        is_of(
            "server.document-root = \"/var/www\"\r\nserver.port = 80\r\n",
            "lighttpd",
            "server.document-root = \"/var/www\"",
        );
    }

    #[test]
    fn of_apache() {
        is_of(
            "<VirtualHost *:80>\n\tServerAdmin webmaster@localhost\n\tDocumentRoot /var/www/html\n\
             \tErrorLog ${APACHE_LOG_DIR}/error.log\n</VirtualHost>\n",
            "the Apache HTTP server",
            "<VirtualHost *:80>",
        );
        is_of("Listen 80\n", "the Apache HTTP server", "Listen 80");
    }

    #[test]
    fn of_haproxy() {
        is_of(
            "global\n    maxconn 4096\n\ndefaults\n    mode http\n    timeout connect 5s\n\nfrontend web\n    \
             bind :80\n    default_backend app\n\nbackend app\n    server one 127.0.0.1:3000 check\n",
            "HAProxy",
            "global",
        );
    }

    #[test]
    fn ours_is_nobody_elses() {
        for text in [
            "",
            "# nginx: server { listen 80; }\n",
            "root = \"/srv\";\n",
            "listen = \"8080\"\nserver.workers = 2\n",
            "server = { workers = 2 }\n",
            "[[site]]\nroot = \"/srv\"\nserver {\n  listen 80;\n}\n",
            "  [server]\ninclude a.conf;\n",
            "hello world\n",
        ] {
            assert_eq!(recognise(text), None, "{text}");
        }
    }
}
