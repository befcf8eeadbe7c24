//! The tables in `docs/tasks` with what nginx has on the left: each row is run in both servers, as its cells have it.

use std::fs;
use std::path::Path;

use super::{app, ask, is_expected, tree};
use crate::support::scripted::Scripted;
use crate::support::{App, Client, Launch};

/// How a row is run.
struct Proof {
    /// The left cell.
    row: &'static str,
    /// What is put in place of other text in both cells, such as addresses.
    swaps: &'static [(&'static str, &'static str)],
    /// The inside of a `server`; `<1>` is the first code in the left cell.
    nginx: &'static str,
    /// The keys of a site and tables behind them; `<1>` is the first code in the right cell.
    levity: &'static str,
    /// Requests and responses as in `from-nginx.md`.
    cases: &'static [&'static str],
}

/// Rows that are not run here, each with what runs it, or why nothing can.
const OTHERS: &[(&str, &str)] = &[
    (
        "`client_max_body_size 2g`",
        "too much for a test; it/uploads",
    ),
    (
        "`min_delete_depth`",
        "nginx removes folders with what is in them; it/uploads",
    ),
    ("`client_body_temp_path`", "no request shows it; it/uploads"),
    ("`listen 8081;` in another `server`", "it/matching"),
    (
        "`error_page 401 =302 https://login...;`",
        "needs a portal; it/gates",
    ),
    ("`secure_link $arg_md5,$arg_expires;`", "from-nginx.md, 28"),
    (
        "`secure_link_md5 \"$secure_link_expires$uri$remote_addr secret\";`",
        "from-nginx.md, 28",
    ),
    (
        "`if ($secure_link = \"\") { return 403; }` and `\"0\"` with 410",
        "from-nginx.md, 28",
    ),
    (
        "`limit_req_zone $binary_remote_addr zone=a:10m rate=10r/s; limit_req zone=a burst=20 nodelay;`",
        "from-nginx.md, 32",
    ),
    ("`limit_req zone=a burst=20;`", "from-nginx.md, 32"),
    (
        "`limit_conn_zone $binary_remote_addr zone=b:10m; limit_conn b 8;`",
        "from-nginx.md, 33",
    ),
    (
        "`limit_rate 1m; limit_rate_after 10m;`",
        "from-nginx.md, 33",
    ),
    ("`limit_req_dry_run on;`", "it/rate_limits"),
];

const ROUTE: &str = "root = \"/srv/www\"\n[[site.route]]\n<1>\nrespond = { status = 204 }\n";

const LOCATION: &str = "root /srv/www; <1> { return 204; }";

const FILES: &str = "root = \"/srv/www\"\n<1>\n";

const GATE: &str = "root /srv/www; location / { <1> }";

const GATES: &str = "root = \"/srv/www\"\n<1>\n<2>\n";

const OWN: &[(&str, &str)] = &[
    ("10.1.0.0/16", "127.1.0.0/16"),
    ("10.0.0.0/8", "127.0.0.0/8"),
];

const TRIES: &str =
    "root /srv/www; location / { <1> } location @app { proxy_pass http://127.0.0.1:3000; }";

const TRY: &str = "root = \"/srv/www\"\nproxy = \"app\"\n<1>\n";

const PROOFS: &[Proof] = &[
    Proof {
        row: "`dav_methods PUT DELETE MKCOL`",
        swaps: &[],
        nginx: "root /srv/uploads; <1>;",
        levity: "root = \"/srv/uploads\"\nupload = { <1> }\n",
        cases: &[
            "PUT /n.txt | \"x\" -> 201",
            "GET /n.txt -> 200 | \"x\"",
            "DELETE /n.txt -> 204",
            "MKCOL /d/ -> 201",
            "DELETE /d/ -> 204",
            "nginx: PUT /no/n.txt | \"x\" -> 500",
            "levity: PUT /no/n.txt | \"x\" -> 409",
        ],
    },
    Proof {
        row: "`create_full_put_path on`",
        swaps: &[],
        nginx: "root /srv/uploads; dav_methods PUT DELETE; <1>;",
        levity: "root = \"/srv/uploads\"\nupload = { methods = [\"PUT\", \"DELETE\"], <1> }\n",
        cases: &[
            "PUT /full/n.txt | \"x\" -> 201",
            "DELETE /full/n.txt -> 204",
            "DELETE /full/ -> 204",
        ],
    },
    Proof {
        row: "`location = /a`",
        swaps: &[],
        nginx: LOCATION,
        levity: ROUTE,
        cases: &[
            "GET /a -> 204",
            "GET /a/ -> 404",
            "GET /ab -> 404",
            "GET /a/b -> 404",
        ],
    },
    Proof {
        row: "`location /a/`",
        swaps: &[],
        nginx: LOCATION,
        levity: ROUTE,
        cases: &[
            "GET /a/ -> 204",
            "GET /a/b -> 204",
            "GET /a/b/c -> 204",
            "GET /a -> 404",
            "GET /ab -> 404",
        ],
    },
    Proof {
        row: "`location /a`",
        swaps: &[],
        nginx: LOCATION,
        levity: ROUTE,
        cases: &[
            "GET /a -> 204",
            "GET /a/ -> 204",
            "GET /ab -> 204",
            "GET /a/b -> 204",
            "GET /a/b/c -> 204",
            "GET /ab/c -> 204",
            "GET /b/a -> 404",
        ],
    },
    Proof {
        row: "`location ~ \\.php$`",
        swaps: &[],
        nginx: LOCATION,
        levity: ROUTE,
        cases: &[
            "GET /x.php -> 204",
            "GET /a/b/x.php -> 204",
            "GET /x.phps -> 404",
            "GET /x.php/y -> 404",
        ],
    },
    Proof {
        row: "`location ~ ^/u/(\\d+)$`",
        swaps: &[],
        nginx: LOCATION,
        levity: ROUTE,
        cases: &[
            "GET /u/12 -> 204",
            "GET /u/12/ -> 404",
            "GET /u/x -> 404",
            "GET /x/u/1 -> 404",
        ],
    },
    Proof {
        row: "`if ($request_method = POST)`",
        swaps: &[],
        nginx: LOCATION,
        levity: ROUTE,
        cases: &["POST /a.txt -> 204", "GET /a.txt -> 200"],
    },
    Proof {
        row: "`if ($http_x_a = b)`, `if ($arg_a = b)`",
        swaps: &[],
        nginx: "root /srv/www; <1> { return 204; } <2> { return 204; }",
        levity: "root = \"/srv/www\"\n[[site.route]]\n<1>\nrespond = { status = 204 }\n\
                 [[site.route]]\n<2>\nrespond = { status = 204 }\n",
        cases: &[
            "GET /a.txt | X-A: b -> 204",
            "GET /a.txt | X-A: bc -> 200",
            "GET /a.txt?a=b -> 204",
            "GET /a.txt?a=bc -> 200",
            "GET /a.txt -> 200",
        ],
    },
    Proof {
        row: "`allow 10.0.0.0/8; deny all;`",
        swaps: &[],
        nginx: GATE,
        levity: FILES,
        cases: &["GET /a.txt -> 403"],
    },
    Proof {
        row: "`allow 10.0.0.0/8; deny all;`",
        swaps: OWN,
        nginx: GATE,
        levity: FILES,
        cases: &["GET /a.txt -> 200"],
    },
    Proof {
        row: "`deny 10.0.0.0/8; allow all;`",
        swaps: &[],
        nginx: GATE,
        levity: FILES,
        cases: &["GET /a.txt -> 200"],
    },
    Proof {
        row: "`deny 10.0.0.0/8; allow all;`",
        swaps: OWN,
        nginx: GATE,
        levity: FILES,
        cases: &["GET /a.txt -> 403"],
    },
    Proof {
        row: "`deny 10.1.0.0/16; allow 10.0.0.0/8; deny all;`",
        swaps: OWN,
        nginx: GATE,
        levity: GATES,
        cases: &["GET /a.txt -> 200"],
    },
    Proof {
        row: "`deny 10.1.0.0/16; allow 10.0.0.0/8; deny all;`",
        swaps: &[
            ("10.1.0.0/16", "127.0.0.0/16"),
            ("10.0.0.0/8", "127.0.0.0/8"),
        ],
        nginx: GATE,
        levity: GATES,
        cases: &["GET /a.txt -> 403"],
    },
    Proof {
        row: "`allow unix:; deny all;`",
        swaps: &[],
        nginx: GATE,
        levity: FILES,
        cases: &["GET /a.txt -> 403"],
    },
    Proof {
        row: "`auth_basic \"Team\"; auth_basic_user_file users;`",
        swaps: &[
            ("user_file users", "user_file /srv/users"),
            ("\"users\"", "\"/srv/users\""),
        ],
        nginx: GATE,
        levity: FILES,
        cases: &[
            "GET /a.txt -> 401 | WWW-Authenticate: Basic realm=\"Team\"",
            "GET /a.txt | Authorization: Basic YW5uOndyb25n -> 401",
            "GET /a.txt | Authorization: Basic YW5uOnNlY3JldA== -> 200",
        ],
    },
    Proof {
        row: "`proxy_set_header X-User $remote_user;`",
        swaps: &[],
        nginx: "location / { auth_basic t; auth_basic_user_file /srv/users; proxy_pass http://127.0.0.1:3000; <1> }",
        levity: "proxy = \"app\"\nbasic_auth = { users = \"/srv/users\", <1> }\n",
        cases: &[
            "GET /x -> 401",
            "GET /x | X-User: eve | Authorization: Basic YW5uOnNlY3JldA== -> 200 | \"x-user: ann\"",
        ],
    },
    Proof {
        row: "`auth_basic off;`",
        swaps: &[],
        nginx: "root /srv/www; auth_basic t; auth_basic_user_file /srv/users; location /files/ { <1> }",
        levity: "root = \"/srv/www\"\nbasic_auth = { users = \"/srv/users\" }\n[[site.route]]\npath = \"/files/*\"\n<1>\n",
        cases: &["GET /files/x.txt -> 200", "GET /a.txt -> 401"],
    },
    Proof {
        row: "`satisfy any; allow 10.0.0.0/8; deny all;` beside `auth_basic`",
        swaps: &[],
        nginx: "root /srv/www; auth_basic t; auth_basic_user_file /srv/users; <1>",
        levity: "root = \"/srv/www\"\n[[site.route]]\n<1>\n<2>\n\
                 [[site.route]]\npath = \"/*\"\nbasic_auth = { users = \"/srv/users\" }\n",
        cases: &[
            "GET /a.txt -> 401",
            "GET /a.txt | Authorization: Basic YW5uOnNlY3JldA== -> 200",
        ],
    },
    Proof {
        row: "`satisfy any; allow 10.0.0.0/8; deny all;` beside `auth_basic`",
        swaps: OWN,
        nginx: "root /srv/www; auth_basic t; auth_basic_user_file /srv/users; <1>",
        levity: "root = \"/srv/www\"\n[[site.route]]\n<1>\n<2>\n\
                 [[site.route]]\npath = \"/*\"\nbasic_auth = { users = \"/srv/users\" }\n",
        cases: &["GET /a.txt -> 200"],
    },
    Proof {
        row: "`auth_request /auth;` and an internal `location = /auth` with `proxy_pass http://authelia/verify;`",
        swaps: &[
            ("http://authelia/verify", "http://127.0.0.1:3000/auth"),
            (
                "upstream = \"authelia\", path = \"/verify\"",
                "upstream = \"app\", path = \"/auth\"",
            ),
        ],
        nginx: "root /srv/www; location / { <1> } <2> { internal; <3> }",
        levity: FILES,
        cases: &["GET /a.txt -> 401", "GET /a.txt | Cookie: session=1 -> 200"],
    },
    Proof {
        row: "`auth_request_set $user $upstream_http_remote_user; proxy_set_header Remote-User $user;`",
        // What the application has in its response.
        swaps: &[("remote_user", "x_internal"), ("Remote-User", "X-Internal")],
        nginx: "location / { auth_request /auth; <1> proxy_pass http://127.0.0.1:3000; }\n\
                location = /auth { internal; proxy_pass http://127.0.0.1:3000/auth; }",
        levity: "proxy = \"app\"\nforward_auth = { upstream = \"app\", path = \"/auth\", <1> }\n",
        cases: &[
            "GET /x -> 401",
            "GET /x | X-Internal: 0 | Cookie: session=1 -> 200 | \"x-internal: 1\"",
        ],
    },
    Proof {
        row: "`auth_request off;`",
        swaps: &[],
        nginx: "root /srv/www; auth_request /auth; location /files/ { <1> }\n\
                location = /auth { internal; proxy_pass http://127.0.0.1:3000/auth; }",
        levity: "root = \"/srv/www\"\nforward_auth = { upstream = \"app\", path = \"/auth\" }\n\
                 [[site.route]]\npath = \"/files/*\"\n<1>\n",
        cases: &["GET /files/x.txt -> 200", "GET /a.txt -> 401"],
    },
    Proof {
        row: "`try_files $uri /index.html;`",
        swaps: &[],
        nginx: TRIES,
        levity: FILES,
        cases: &[
            "GET /a.txt -> 200 | \"text\"",
            "GET /about -> 200 | \"home\"",
            "GET /no/thing.js -> 200 | \"home\"",
            "nginx: GET /docs/ -> 200 | \"home\"",
            "levity: GET /docs/ -> 200 | \"docs\"",
        ],
    },
    Proof {
        row: "`try_files $uri $uri/ =404;`",
        swaps: &[],
        nginx: TRIES,
        levity: FILES,
        cases: &[
            "GET /a.txt -> 200 | \"text\"",
            "GET /docs -> 301 | Location: /docs/",
            "GET /docs/ -> 200 | \"docs\"",
            "GET /about -> 404",
        ],
    },
    Proof {
        row: "`try_files $uri $uri.html $uri/ =404;`",
        swaps: &[],
        nginx: TRIES,
        levity: FILES,
        cases: &[
            "GET /about -> 200 | \"about\"",
            "GET /docs -> 301 | Location: /docs/",
            "GET /no -> 404",
        ],
    },
    Proof {
        row: "`try_files $uri @app;`",
        swaps: &[],
        nginx: TRIES,
        levity: TRY,
        cases: &[
            "GET /a.txt -> 200 | \"text\"",
            "GET /x/y?z -> 200 | \"GET /x/y?z\"",
        ],
    },
    Proof {
        row: "`try_files $uri $uri/ /index.php?$args;`",
        swaps: &[],
        nginx: "root /srv/php; location / { <1> }\n\
                location ~ \\.php$ { include fastcgi_params; \
                fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_pass unix:/run/php/php-fpm.sock; }",
        levity: "root = \"/srv/php\"\nproxy = \"php\"\nscript_suffix = \".php\"\n<1>\n<2>\n",
        cases: &[
            "GET /note.txt -> 200 | \"note\"",
            "GET /x/y?z=1 -> 200 | \"index /x/y?z=1\"",
            "GET /admin -> 301 | Location: /admin/",
        ],
    },
    Proof {
        row: "`fastcgi_param APP_ENV production;`",
        swaps: &[],
        nginx: SCRIPTS,
        levity: PARAMS,
        cases: &["GET /told.php -> 200 | \"production here\""],
    },
    Proof {
        row: "`fastcgi_param SCRIPT_FILENAME /var/www/html$fastcgi_script_name;`",
        swaps: &[("/var/www/html", "/srv/php")],
        nginx: "root /srv/php; location / { include fastcgi_params; <1> fastcgi_pass unix:/run/php/php-fpm.sock; }",
        levity: PARAMS,
        cases: &["GET /told.php -> 200 | \"no here\""],
    },
];

/// Rows about PHP.
const SCRIPTS: &str = "root /srv/php; location / { include fastcgi_params; \
    fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; <1> fastcgi_pass unix:/run/php/php-fpm.sock; }";
const PARAMS: &str = "root = \"/srv/php\"\nproxy = \"php\"\nscript_suffix = \".php\"\n<1>\n";

/// The rows of the tables with `| nginx | Levity |` on top, of all pages: both cells.
fn rows() -> Vec<[String; 2]> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tasks");
    let pages = fs::read_dir(folder).expect("the pages");
    pages
        .flat_map(|page| rows_of(&page.expect("a page").path()))
        .collect()
}

/// The rows of one page.
fn rows_of(page: &Path) -> Vec<[String; 2]> {
    let page = fs::read_to_string(page).expect("the page");
    let tables = page.split("\n| nginx | Levity |\n|---|---|\n").skip(1);
    let rows = tables.flat_map(|table| table.lines().take_while(|line| line.starts_with('|')));
    let cells = |row: &str| {
        let row = row.trim_matches('|');
        let (left, right) = row.split_once(" | ").expect("two cells");
        [left, right].map(|cell| cell.trim().to_owned())
    };
    rows.map(cells).collect()
}

/// `template` with the codes of `cell` in place of `<1>` and so on.
fn filled(template: &str, cell: &str, proof: &Proof) -> String {
    let mut text = template.to_owned();
    for (number, code) in (1..).zip(cell.split('`').skip(1).step_by(2)) {
        let swap = |code: String, (from, to): &(&str, &str)| code.replace(from, to);
        let code = proof.swaps.iter().fold(code.to_owned(), swap);
        text = text.replace(&format!("<{number}>"), &code);
    }
    assert!(
        !text.contains("<1>") && !text.contains("<2>"),
        "{}: {text}",
        proof.row
    );
    text
}

/// What is wrong with the responses of `server`, of which each proof has a host.
fn wrong(server: &str, address: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, proof) in PROOFS.iter().enumerate() {
        for case in proof.cases {
            let (only, case) = match case.split_once(": ") {
                Some((only @ ("nginx" | "levity"), case)) => (only, case),
                _ => (server, *case),
            };
            let (request, expected) = case.split_once(" -> ").expect(case);
            if only != server {
                continue;
            }
            let answer = ask(
                &mut Client::to(address),
                &format!("{request} | Host: row{number}.test"),
            );
            if !is_expected(&answer, expected) {
                wrong.push(format!("{}: {server}: {case}\n{answer:?}", proof.row));
            }
        }
    }
    wrong
}

#[test]
fn both_servers_behave_as_the_tables_say() {
    let (tree, app, php) = (tree(), Scripted::tcp(app), App::php_fpm());
    let root = tree.path().display().to_string();
    let php = php.address().trim_start_matches("unix:").to_owned();
    let here = |text: &str| {
        text.replace("/srv", &root)
            .replace("127.0.0.1:3000", app.address())
            .replace("/run/php/php-fpm.sock", &php)
    };
    let mut rows = rows();
    let mut nginx = String::new();
    let mut levity = "[[listen]]\naddress = \"127.0.0.1:0\"\n\
        [[upstream]]\nname = \"app\"\nto = [\"127.0.0.1:3000\"]\n\
        [[upstream]]\nname = \"php\"\nprotocol = \"fastcgi\"\nto = [\"unix:/run/php/php-fpm.sock\"]\n"
        .to_owned();
    for (number, proof) in PROOFS.iter().enumerate() {
        let row = rows.iter().find(|[left, _]| left == proof.row);
        let [left, right] = row.expect(proof.row);
        let host = format!("row{number}.test");
        let inside = filled(proof.nginx, left, proof);
        nginx.push_str(&format!(
            "server {{ listen 80; server_name {host}; {inside} }}\n"
        ));
        let keys = filled(proof.levity, right, proof);
        levity.push_str(&format!("[[site]]\nhosts = [\"{host}\"]\n{keys}"));
    }
    let is_run = |left: &str| PROOFS.iter().any(|proof| proof.row == left);
    let is_other = |left: &str| OTHERS.iter().any(|(row, _)| *row == left);
    assert_eq!(rows.len(), 40);
    rows.retain(|[left, _]| is_run(left) == is_other(left));
    assert_eq!(rows, [[""; 2]; 0], "these rows are run nowhere, or twice");
    let mut all_wrong = {
        let nginx = App::nginx(&here(&nginx));
        wrong("nginx", nginx.address())
    };
    let server = Launch::run(&here(&levity)).start();
    all_wrong.extend(wrong("levity", &server.address().to_string()));
    assert!(all_wrong.is_empty(), "{}", all_wrong.join("\n"));
}
