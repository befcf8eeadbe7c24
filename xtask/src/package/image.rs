//! The image for containers: an archive with an OCI image layout (<https://github.com/opencontainers/image-spec>, version 1.0).
//!
//! It has no shell and no library. Its user is no root, and only the volume is written to.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::archive::{self, Tar};
use super::release::{self, Release};
use super::staged::Staged;
use super::target::Target;
use crate::files;
use crate::run::{self, Result};

/// The number of the user and the group, as in `packaging/image/passwd`. A number, so that Kubernetes sees that it is not root.
const USER: &str = "65532";

/// The folder for certificates, keys, bodies of requests and the control socket.
const VOLUME: &str = "var/lib/levity";

/// The authorities of the Debian package ca-certificates. `/etc/ssl/certs` has those of this machine as well.
const AUTHORITIES: &str = "/usr/share/ca-certificates/mozilla";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

pub fn write(release: &Release, target: &Target, program: &Path, notices: &str) -> Result<()> {
    let work = release.work().join(target.processor);
    let staged = files(work.join("root"), program, notices)?;
    let layer = work.join("layer.tar");
    let tar = Tar {
        folder: &staged.0,
        names: &["etc", "srv", "usr", "var"],
        owned: &[(VOLUME, USER)],
    };
    tar.write(release, &layer)?;

    let layout = Staged::new(work.join("image"))?;
    let config = config(release, target, &release::sha256(&layer)?)?;
    let layer = blob(&layout, LAYER, &archive::gzip(&layer)?)?;
    let config = json_blob(&layout, &work, CONFIG, &config)?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
    });
    let mut manifest = json_blob(&layout, &work, MANIFEST, &manifest)?;
    manifest["platform"] = json!({ "os": "linux", "architecture": target.architecture });
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    layout.text("index.json", index.to_string())?;
    layout.text(
        "oci-layout",
        json!({ "imageLayoutVersion": "1.0.0" }).to_string(),
    )?;
    let image = Tar {
        folder: &layout.0,
        names: &["blobs", "index.json", "oci-layout"],
        owned: &[],
    };
    image.write(
        release,
        &release.output.join(release.file(target, "image.tar")),
    )
}

/// Everything in the image.
fn files(folder: PathBuf, program: &Path, notices: &str) -> Result<Staged> {
    let staged = Staged::new(folder)?;
    staged.program("usr/bin/levity", program)?;
    let packaging = run::root().join("packaging");
    for (from, to) in [
        ("image/group", "etc/group"),
        ("image/passwd", "etc/passwd"),
        ("image/levity.toml", "etc/levity/levity.toml"),
        ("welcome/index.html", "srv/www/index.html"),
    ] {
        staged.copy(to, &packaging.join(from))?;
    }
    staged.text("etc/ssl/certs/ca-certificates.crt", authorities()?)?;
    staged.text("usr/share/doc/levity/NOTICES", notices)?;
    staged.private_folder(VOLUME)?;
    Ok(staged)
}

/// One certificate of an authority after the other, by the names of their files.
fn authorities() -> Result<String> {
    let mut all = String::new();
    let certificates = files::entries(Path::new(AUTHORITIES))
        .map_err(|error| format!("{error}\nthe Debian package ca-certificates has it"))?;
    for file in certificates {
        all.push_str(files::read(&file)?.trim_end());
        all.push('\n');
    }
    Ok(all)
}

/// How the image is run.
fn config(release: &Release, target: &Target, layer: &str) -> Result<Value> {
    let created = release.date("+%Y-%m-%dT%H:%M:%SZ")?;
    Ok(json!({
        "created": created,
        "architecture": target.architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": { "8080/tcp": {} },
            "Env": [
                "PATH=/usr/bin",
                format!("STATE_DIRECTORY=/{VOLUME}"),
                // `levity health` and `levity reload` work with any configuration.
                format!("RUNTIME_DIRECTORY=/{VOLUME}"),
            ],
            "Entrypoint": ["levity"],
            "Cmd": ["run", "/etc/levity/levity.toml"],
            "Volumes": { format!("/{VOLUME}"): {} },
            "WorkingDir": "/srv/www",
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "levity",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        "history": [{ "created": created, "created_by": "cargo xtask package" }],
    }))
}

/// Adds a value as JSON; its descriptor.
fn json_blob(layout: &Staged, work: &Path, kind: &str, value: &Value) -> Result<Value> {
    let path = work.join("blob.json");
    let failed = |error| format!("{}: {error}", path.display());
    fs::write(&path, value.to_string()).map_err(failed)?;
    blob(layout, kind, &path)
}

/// Adds a file under its digest; its descriptor.
fn blob(layout: &Staged, kind: &str, path: &Path) -> Result<Value> {
    let digest = release::sha256(path)?;
    let size = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    layout.copy(&format!("blobs/sha256/{digest}"), path)?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": size.len() }))
}
