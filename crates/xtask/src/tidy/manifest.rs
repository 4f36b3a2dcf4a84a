//! The part of a Cargo.toml that the rules need: the names in its tables of dependencies.

/// What a manifest depends on.
#[derive(Default, Debug)]
pub(crate) struct Manifest {
    /// Names under `[dependencies]` and `[build-dependencies]`.
    pub(crate) dependencies: Vec<String>,
    /// Of a workspace: names under `[workspace.dependencies]` that are not paths in it.
    pub(crate) outside_dependencies: Vec<String>,
}

impl Manifest {
    /// Parses one. Our manifests have one dependency a line; `[dependencies.name]` counts too.
    pub(crate) fn parse(text: &str) -> Self {
        let mut manifest = Self::default();
        let mut table = String::new();
        for line in text.lines().map(str::trim) {
            if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                title.clone_into(&mut table);
                if let Some(name) = title.strip_prefix("dependencies.") {
                    manifest.dependencies.push(name.to_owned());
                }
                continue;
            }
            let Some((name, value)) = line.split_once('=') else { continue };
            let name = name.trim().trim_end_matches(".workspace").to_owned();
            if name.starts_with('#') {
                continue;
            }
            match table.as_str() {
                "dependencies" | "build-dependencies" => manifest.dependencies.push(name),
                "workspace.dependencies" if !value.contains("path =") => {
                    manifest.outside_dependencies.push(name);
                }
                _ => {}
            }
        }
        manifest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_their_tables() {
        let text = "[package]\nname = \"x\"\n[dependencies]\na = { workspace = true }\n# b = 1\n\
                    c.workspace = true\n[dependencies.d]\nversion = \"1\"\n[dev-dependencies]\n\
                    e = \"1\"\n[workspace.dependencies]\nf = { path = \"f\" }\ng = \"1\"\n";
        let manifest = Manifest::parse(text);
        assert_eq!(manifest.dependencies, ["a", "c", "d"]);
        assert_eq!(manifest.outside_dependencies, ["g"]);
    }
}
