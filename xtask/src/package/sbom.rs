//! The list of components in the form of CycloneDX 1.5. `cargo-cyclonedx` would write the present time and random numbers into it,
//! and does not know the C library.

use serde_json::{Value, json};

use super::components::Component;
use super::release::Release;
use crate::run::Result;

/// The text of the file.
pub fn text(release: &Release, components: &[Component]) -> Result<String> {
    let is_program = |one: &&Component| one.name == "levity";
    let program = components.iter().find(is_program);
    let libraries = components.iter().filter(|one| !is_program(one));
    let text = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.date("+%Y-%m-%dT%H:%M:%SZ")?,
            "component": program.map(|one| component(one, "application")),
        },
        "components": libraries.map(|one| component(one, "library")).collect::<Vec<_>>(),
        "dependencies": components.iter().map(dependency).collect::<Vec<_>>(),
    });
    Ok(format!("{text:#}\n"))
}

fn component(one: &Component, kind: &str) -> Value {
    let mut value = json!({
        "type": kind,
        "bom-ref": reference(&one.name, &one.version),
        "name": one.name,
        "version": one.version,
        "licenses": [{ "expression": one.licence }],
    });
    if let Some(purl) = &one.purl {
        value["purl"] = json!(purl);
    }
    value
}

fn dependency(one: &Component) -> Value {
    let uses = one.uses.iter();
    let uses: Vec<_> = uses
        .map(|(name, version)| reference(name, version))
        .collect();
    json!({ "ref": reference(&one.name, &one.version), "dependsOn": uses })
}

fn reference(name: &str, version: &str) -> String {
    format!("{name}@{version}")
}
