//! Archives as programs read them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use levity_wire::archive::{Member, tar, zip::Zip};

/// What a program of Debian says about `archive`, which it gets as a file or, if it is named `-`, from a pipe.
#[track_caller]
fn said(archive: &[u8], program: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("archive"), archive).expect("a file");
    let mut child = Command::new(program[0])
        .args(&program[1..])
        .env("TZ", "UTC")
        .env("LC_ALL", "C.UTF-8")
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let mut input = child.stdin.take().expect("a pipe");
    let bytes = archive.to_vec();
    // A program that reads the file ends before it has read all of its input.
    let writing = std::thread::spawn(move || drop(input.write_all(&bytes)));
    let output = child.wait_with_output().expect("an output");
    writing.join().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{program:?}: {errors}"
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const PYTHON_ZIP: &str = "import sys, zipfile\n\
    z = zipfile.ZipFile(sys.argv[1])\n\
    assert z.testzip() is None\n\
    for i in z.infolist(): print(i.filename, i.file_size, *i.date_time, z.read(i)[:9].decode())\n";

const PYTHON_TAR: &str = "import sys, tarfile\n\
    t = tarfile.open(sys.argv[1])\n\
    for i in t: print(i.name, i.size, int(i.mtime), i.isdir(), t.extractfile(i).read(9).decode() if i.isfile() else '')\n";

fn members() -> Vec<(Vec<u8>, bool, Vec<u8>, i64)> {
    let time = 1_795_203_726;
    let deep = [&b"d/"[..], &b"long-name/".repeat(30), b"end"].concat();
    vec![
        (b"d".to_vec(), true, Vec::new(), time),
        (b"d/empty".to_vec(), false, Vec::new(), 0),
        (
            "d/caf\u{e9} a&b".as_bytes().to_vec(),
            false,
            b"content\n".to_vec(),
            time,
        ),
        (deep, false, b"deep".to_vec(), time),
        (
            b"d/large".to_vec(),
            false,
            vec![b'x'; 200_000],
            5_000_000_000,
        ),
    ]
}

fn tar_of(members: &[(Vec<u8>, bool, Vec<u8>, i64)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, is_folder, content, mtime_s) in members {
        let size = content.len() as u64;
        tar::push_header(&mut out, &member(path, *is_folder, size, *mtime_s));
        out.extend_from_slice(content);
        tar::push_padding(&mut out, size);
    }
    tar::push_end(&mut out);
    out
}

fn zip_of(members: &[(Vec<u8>, bool, Vec<u8>, i64)]) -> Vec<u8> {
    let (mut out, mut zip) = (Vec::new(), Zip::default());
    for (path, is_folder, content, mtime_s) in members {
        let size = content.len() as u64;
        zip.begin_member(&mut out, &member(path, *is_folder, size, *mtime_s));
        for part in content.chunks(70_000) {
            zip.push_content(&mut out, part);
        }
        zip.end_member(&mut out, crc(content));
    }
    assert!(zip.memory() > 0);
    zip.finish()
        .iter()
        .for_each(|part| out.extend_from_slice(part));
    out
}

fn member(path: &[u8], is_folder: bool, size: u64, mtime_s: i64) -> Member<'_> {
    Member {
        path,
        is_folder,
        size,
        mtime_s,
    }
}

/// Bit by bit.
fn crc(content: &[u8]) -> u32 {
    let crc = content.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 * (crc & 1))
        })
    });
    !crc
}

fn names() -> String {
    let slash = |is_folder: bool| if is_folder { "/" } else { "" };
    let all = members().into_iter();
    all.map(|(path, is_folder, ..)| {
        format!("{}{}\n", String::from_utf8_lossy(&path), slash(is_folder))
    })
    .collect()
}

#[test]
fn tar_is_read_by_programs() {
    let archive = tar_of(&members());
    assert_eq!(
        said(
            &archive,
            &["tar", "-tf", "archive", "--quoting-style=literal"]
        ),
        names()
    );
    assert_eq!(said(&archive, &["bsdtar", "-tf", "-"]), names());
    let listed = said(&archive, &["tar", "-tvf", "-", "--full-time"]);
    assert!(
        listed.contains("-rw-r--r-- 0/0               8 2026-11-20 19:42:06 "),
        "{listed}"
    );
    let python = said(&archive, &["python3", "-c", PYTHON_TAR, "archive"]);
    assert!(python.contains("d/empty 0 0 False \n"), "{python}");
    assert!(
        python.contains("d/large 200000 5000000000 False xxxxxxxxx\n"),
        "{python}"
    );
    assert!(
        python.contains("long-name/end 4 1795203726 False deep\n"),
        "{python}"
    );
}

#[test]
fn zip_is_read_by_programs() {
    let archive = zip_of(&members());
    assert!(said(&archive, &["unzip", "-t", "archive"]).contains("No errors detected"));
    assert_eq!(said(&archive, &["bsdtar", "-tf", "archive"]), names());
    // From a pipe, without the directory.
    assert_eq!(said(&archive, &["bsdtar", "-tf", "-"]), names());
    assert_eq!(
        said(&archive, &["bsdtar", "-xOf", "-", "d/caf\u{e9} a&b"]),
        "content\n"
    );
    let python = said(&archive, &["python3", "-c", PYTHON_ZIP, "archive"]);
    assert!(python.contains("d/ 0 2026 11 20 19 42 6 \n"), "{python}");
    assert!(python.contains("d/empty 0 1980 1 1 0 0 0 \n"), "{python}");
    assert!(
        python.contains("d/large 200000 2107 12 31 23 59 58 xxxxxxxxx\n"),
        "{python}"
    );
    let listed = said(&archive, &["unzip", "-Z", "-s", "archive"]);
    assert!(listed.contains("drwxr-xr-x"), "{listed}");
}

#[test]
fn names_that_are_not_utf8() {
    let members = [(b"a\xffb".to_vec(), false, b"x".to_vec(), 0)];
    assert_eq!(said(&tar_of(&members), &["tar", "-tf", "-"]), "a\\377b\n");
    assert!(said(&zip_of(&members), &["unzip", "-tqq", "archive"]).is_empty());
}

/// More than a field of 16 bits can count.
#[test]
fn many_members() {
    let members: Vec<_> = (0..70_000)
        .map(|number| (format!("d/{number}").into_bytes(), false, Vec::new(), 0))
        .collect();
    let archive = zip_of(&members);
    assert_eq!(
        said(&archive, &["unzip", "-Z", "-1", "archive"])
            .lines()
            .count(),
        70_000
    );
    let count = "import sys, zipfile; print(len(zipfile.ZipFile(sys.argv[1]).infolist()))";
    assert_eq!(
        said(&archive, &["python3", "-c", count, "archive"]),
        "70000\n"
    );
}

/// The content is a hole in the file, so only the bytes around it are written.
#[test]
fn a_member_of_nine_gigabytes() {
    use std::io::{Seek, SeekFrom};
    const SIZE: u64 = 9_000_000_000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("archive");
    let mut file = std::fs::File::create(&path).expect("a file");
    let mut out = Vec::new();
    tar::push_header(&mut out, &member(b"large", false, SIZE, 0));
    file.write_all(&out).expect("written");
    file.seek(SeekFrom::Current(SIZE as i64)).expect("a hole");
    out.clear();
    tar::push_padding(&mut out, SIZE);
    tar::push_header(&mut out, &member(b"next", false, 0, 0));
    tar::push_end(&mut out);
    file.write_all(&out).expect("written");
    assert_eq!(
        listed(&path, &["tar", "-tvf"]),
        ["9000000000 large", "0 next"]
    );
    assert_eq!(
        listed(&path, &["bsdtar", "-tvf"]),
        ["9000000000 large", "0 next"]
    );
}

/// Size and name of each member.
fn listed(archive: &Path, program: &[&str]) -> Vec<String> {
    let output = Command::new(program[0])
        .args(&program[1..])
        .arg(archive)
        .output()
        .expect("a program");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let size = |row: &[&str]| match program[0] {
        "tar" => row[2].to_owned(),
        _ => row[4].to_owned(),
    };
    rows.map(|row| format!("{} {}", size(&row), row[row.len() - 1]))
        .collect()
}
