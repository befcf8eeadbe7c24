//! The manual page `packaging/man/levity.1` and what shells complete, from the definition of the command line.
//!
//! `LEVITY_WRITE_DOCS=1 cargo test -p levity --lib manual` writes the files.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use super::Arguments;

const START: &str = r#".\" Written from the source by `cargo xtask docs`: change it there.
.ie \n(.g .ds Aq \(aq
.el .ds Aq '
.TH LEVITY 1 "" "Levity" "User commands"
"#;

/// What `clap_mangen` writes before each section.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// What the command line does not say.
const END: &str = r#".SH SIGNALS
.TP
.B SIGTERM, SIGINT, SIGQUIT
Stop accepting, finish requests in progress (at most \fBlimits.drain_timeout\fP), then exit. A second one exits at once.
.TP
.B SIGHUP
Reload the configuration file.
A file with errors, or with changes that need a restart, changes nothing. No connection is dropped.
.TP
.B SIGUSR1
Reopen the access logs, after log rotation.
.SH EXIT STATUS
.TP
.B 0
Stopped by a signal, or finished normally.
.TP
.B 1
Failure at startup or while running, named on standard error.
.TP
.B 2
Invalid command line.
.TP
.B 78
The configuration file has errors.
.SH FILES
.TP
.I /etc/levity/levity.toml
The configuration of the packages.
.TP
.I /var/lib/levity
Certificates, keys and accounts at authorities, when the server runs as a service.
.SH "WITHOUT SYSTEMD"
The unit makes the folders of the server and lets it listen below port 1024. Where systemd does not run, root does:
.PP
.EX
for folder in /run/levity /var/lib/levity /var/cache/levity; do
    install \-d \-o levity \-g levity \-m 700 $folder
done
export RUNTIME_DIRECTORY=/run/levity STATE_DIRECTORY=/var/lib/levity
exec setpriv \-\-reuid levity \-\-regid levity \-\-init\-groups \-\-no\-new\-privs \e
    \-\-inh\-caps=\-all,+net_bind_service \-\-ambient\-caps=\-all,+net_bind_service \e
    \-\-bounding\-set=\-all,+net_bind_service levity run
.EE
.PP
It stays in the foreground, and its messages are on standard error. Whatever starts programs on that machine can run it so.
.SH SEE ALSO
.BR levity.toml (5)
"#;

/// A command without the options that are hidden, which some shells would complete.
fn visible(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|one| !one.is_hide_set());
    let name: &str = command.get_name().to_owned().leak();
    let mut copy = Command::new(name)
        .args(arguments.cloned())
        .subcommands(command.get_subcommands().map(visible));
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        copy = copy.long_about(about.clone());
    }
    copy
}

fn levity() -> Command {
    visible(&Arguments::command()).version(env!("CARGO_PKG_VERSION"))
}

/// One page for the program and all of its commands.
fn manual() -> String {
    let mut command = levity().disable_help_subcommand(true);
    command.build();
    let mut out = Vec::new();
    let page = Man::new(command.clone());
    page.render_name_section(&mut out).unwrap();
    page.render_synopsis_section(&mut out).unwrap();
    let subcommands: String = command.get_subcommands().map(section).collect();
    let page = String::from_utf8(out).unwrap() + &subcommands;
    START.to_owned() + &with_bold_code(&page.replace(PREAMBLE, "")) + END
}

/// The section of a command, and those of its own commands.
fn section(command: &Command) -> String {
    let name = command.get_bin_name().unwrap();
    let page = Man::new(command.clone());
    let mut out = Vec::new();
    page.render_synopsis_section(&mut out).unwrap();
    page.render_description_section(&mut out).unwrap();
    page.render_options_section(&mut out).unwrap();
    let page = String::from_utf8(out).unwrap().replace(".SH ", ".SS ");
    let subcommands = command.get_subcommands().map(section);
    format!(".SH \"{name}\"\n{page}") + &subcommands.collect::<String>()
}

fn with_bold_code(text: &str) -> String {
    let mut fonts = ["\\fB", "\\fP"].into_iter().cycle();
    let parts = text.split_inclusive('`');
    let parts = parts.map(|part| match part.strip_suffix('`') {
        Some(part) => part.to_owned() + fonts.next().unwrap(),
        None => part.to_owned(),
    });
    parts.collect()
}

fn completions(shell: Shell) -> String {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut levity(), "levity", &mut out);
    String::from_utf8(out).unwrap()
}

fn packaging(file: &str) -> PathBuf {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    packaging.join(file)
}

#[test]
fn the_committed_files_are_those_of_the_code() {
    for (file, text) in [
        ("man/levity.1", manual()),
        ("completions/levity.bash", completions(Shell::Bash)),
        ("completions/_levity", completions(Shell::Zsh)),
        ("completions/levity.fish", completions(Shell::Fish)),
    ] {
        if std::env::var_os("LEVITY_WRITE_DOCS").is_some() {
            fs::write(packaging(file), &text).unwrap();
        }
        let committed = fs::read_to_string(packaging(file)).unwrap();
        assert!(committed == text, "{file} is old: run cargo xtask docs");
        assert!(text.contains("--spa") || text.contains("-l spa") || text.contains("\\-\\-spa"));
        assert!(!text.contains("patience"), "{file} has a hidden option");
    }
}
