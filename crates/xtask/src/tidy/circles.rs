//! Circles of imports: no file of a crate depends on a file that depends on it.
//!
//! A file depends on another when it names an item of it by a path: in a `use`, or with `crate::`,
//! `super::` or a submodule's name in front. Three kinds of paths do not count: a re-export
//! (`pub use`), which is followed to the item; a type of which the file has an `impl`, because it is
//! a part of that type then; and whatever is compiled for tests alone. It reads lines, not syntax.

use super::source::{blanked, rust_files};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Circles that are not broken yet: a crate, and one file of each of its circles. An entry without a
/// circle is a fault.
const ACCEPTED: [(&str, &[&str]); 1] = [("ring", &["conn.rs", "job.rs", "kernel.rs"])];

/// A path as segments.
type Segments = Vec<String>;

/// A module: its own text, and what it takes from others.
#[derive(Debug, Default)]
struct Module {
    file: String,
    uses: BTreeSet<Segments>,
    /// Names that it re-exports, and their paths.
    exports: BTreeMap<String, Segments>,
    /// Modules whose items it re-exports all.
    export_globs: Vec<Segments>,
    /// Types of which it has an `impl`.
    impls: BTreeSet<String>,
    /// Submodules, wherever their files are.
    submodules: BTreeSet<String>,
    /// Those that are compiled for tests alone.
    test_modules: BTreeSet<String>,
}

/// The modules of a crate by their paths.
type Modules = BTreeMap<Segments, Module>;

/// Which file takes which names from which other file.
type Edges = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Finds the circles of `crates/<folder>`.
pub(super) fn check_crate(root: &Path, folder: &str, faults: &mut Vec<String>) -> Result<()> {
    let home = root.join("crates").join(folder).join("src");
    let mut files = Vec::new();
    rust_files(&home, &mut files)?;
    let mut modules = Modules::new();
    let has_lib = home.join("lib.rs").exists();
    for path in &files {
        let shown = path.strip_prefix(&home).unwrap_or(path).display().to_string();
        let is_other_root = shown.starts_with("bin/") || (has_lib && shown == "main.rs");
        if !is_other_root {
            modules.insert(place_of(&shown), module(shown, &fs::read_to_string(path)?));
        }
    }
    remove_tests(&mut modules);
    let accepted = ACCEPTED.iter().filter(|(of, _)| *of == folder).flat_map(|(_, files)| *files);
    let accepted: Vec<&str> = accepted.copied().collect();
    compare(folder, &accepted, &edges(&modules), faults);
    Ok(())
}

/// Each circle must be accepted, and each accepted file must be in a circle.
fn compare(folder: &str, accepted: &[&str], edges: &Edges, faults: &mut Vec<String>) {
    let circles = circles(edges);
    for circle in &circles {
        if !accepted.iter().any(|file| circle.contains(*file)) {
            faults.push(described(folder, circle, edges));
        }
    }
    for file in accepted {
        if !circles.iter().any(|circle| circle.contains(*file)) {
            faults.push(format!(
                "crates/{folder}/src/{file} is in no circle of imports: remove it from ACCEPTED in \
                 crates/xtask/src/tidy/circles.rs"
            ));
        }
    }
}

/// The module path of a file below `src`.
fn place_of(shown: &str) -> Segments {
    let mut place: Segments = shown.trim_end_matches(".rs").split('/').map(String::from).collect();
    if place.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        place.pop();
    }
    place
}

fn remove_tests(modules: &mut Modules) {
    let of_tests: Vec<Segments> = modules
        .iter()
        .flat_map(|(place, module)| {
            module.test_modules.iter().map(|name| [place.clone(), vec![name.clone()]].concat())
        })
        .collect();
    modules.retain(|place, _| {
        let is_test = place.iter().any(|segment| segment == "tests");
        !is_test && !of_tests.iter().any(|test| place.starts_with(test))
    });
}

fn module(file: String, text: &str) -> Module {
    let code = blanked(text);
    let mut module = Module { file, ..Module::default() };
    let mut rest = code.as_str();
    let mut is_for_tests = false;
    let mut outside = String::new();
    while let Some(line) = rest.lines().next() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if is_for_tests && trimmed.starts_with("mod ") && line.trim_end().ends_with('{') {
            rest = behind_block(rest);
        } else if is_for_tests && trimmed.contains("mod ") {
            let name = trimmed.rsplit(' ').next().unwrap_or_default().trim_end_matches(';');
            module.test_modules.insert(name.to_owned());
            rest = behind_line(rest);
        } else if let Some((is_export, tree)) = use_tree(&rest[indent..]) {
            if !is_for_tests {
                add_use(&mut module, is_export, tree);
            }
            rest = &rest[indent..];
            rest = behind_line(&rest[rest.find(';').unwrap_or(0)..]);
        } else {
            if let Some((visible, name)) = trimmed.split_once("mod ")
                && (visible.is_empty() || visible.starts_with("pub"))
                && let Some(name) = name.strip_suffix(';')
            {
                module.submodules.insert(name.to_owned());
            }
            if trimmed.starts_with("impl") {
                module.impls.extend(implemented(&rest[indent..]));
            }
            outside.push_str(line);
            outside.push('\n');
            let is_attribute = trimmed.starts_with("#[");
            is_for_tests = trimmed.starts_with("#[cfg(test)]") || (is_for_tests && is_attribute);
            rest = behind_line(rest);
            continue;
        }
        is_for_tests = false;
    }
    module.uses.extend(paths_in(&outside));
    module
}

fn behind_line(text: &str) -> &str {
    text.find('\n').map_or("", |end| &text[end + 1..])
}

/// The text behind the block that begins at its first brace.
fn behind_block(text: &str) -> &str {
    let mut depth = 0_usize;
    for (index, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 1 => return behind_line(&text[index..]),
            '}' => depth -= 1,
            _ => {}
        }
    }
    ""
}

/// Whether a `use` that begins here is a re-export, and its tree.
fn use_tree(text: &str) -> Option<(bool, &str)> {
    let (is_export, behind) = match text.strip_prefix("pub") {
        Some(behind) if behind.starts_with('(') => (true, behind.split_once(") ")?.1),
        Some(behind) => (true, behind.strip_prefix(' ')?),
        None => (false, text),
    };
    let tree = behind.strip_prefix("use ")?;
    Some((is_export, tree.split_once(';')?.0))
}

fn add_use(module: &mut Module, is_export: bool, tree: &str) {
    let mut paths = Vec::new();
    expand(&[], tree.trim(), &mut paths);
    for (name, path) in paths {
        if !is_export {
            module.uses.insert(path);
        } else if name == "*" {
            module.export_globs.push(path[..path.len() - 1].to_vec());
        } else {
            module.exports.insert(name, path);
        }
    }
}

/// All paths of a `use` tree, each with the name that it gets.
fn expand(before: &[String], tree: &str, paths: &mut Vec<(String, Segments)>) {
    if let Some((head, list)) = tree.split_once('{') {
        let head = head.trim().trim_end_matches("::");
        let head = head.split("::").map(str::trim).filter(|segment| !segment.is_empty());
        let before: Segments = before.iter().cloned().chain(head.map(String::from)).collect();
        let list = list.trim_end().trim_end_matches('}');
        let opened = list.matches('{').count() - list.matches('}').count();
        let list = format!("{list}{}", "}".repeat(opened));
        for part in split_list(&list) {
            expand(&before, part.trim(), paths);
        }
        return;
    }
    let (path, name) = match tree.split_once(" as ") {
        Some((path, name)) => (path, Some(name.trim())),
        None => (tree, None),
    };
    let mut path: Segments = before
        .iter()
        .cloned()
        .chain(path.split("::").map(|segment| segment.trim().to_owned()))
        .filter(|segment| !segment.is_empty())
        .collect();
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let last = path.last().cloned();
    if let Some(name) = name.map(ToOwned::to_owned).or(last) {
        paths.push((name, path));
    }
}

/// Splits at commas that are not inside braces.
fn split_list(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_usize, 0);
    for (index, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&list[from..index]);
                from = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[from..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// The type of an `impl` that begins here.
fn implemented(text: &str) -> Option<String> {
    let head = text.split_once('{')?.0.strip_prefix("impl")?;
    let head = match head.strip_prefix('<') {
        Some(_) => &head[behind_generics(head)..],
        None => head,
    };
    let of_type = head.rsplit_once(" for ").map_or(head, |(_, of_type)| of_type);
    let of_type = of_type.trim().trim_start_matches('&');
    let end = of_type.find(|one: char| !one.is_alphanumeric() && one != '_' && one != ':');
    let path = &of_type[..end.unwrap_or(of_type.len())];
    path.rsplit("::").next().map(ToOwned::to_owned)
}

fn behind_generics(text: &str) -> usize {
    let mut depth = 0_usize;
    for (index, character) in text.char_indices() {
        match character {
            '<' => depth += 1,
            '>' if depth == 1 => return index + 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    text.len()
}

/// All paths of two segments or more in code.
fn paths_in(code: &str) -> BTreeSet<Segments> {
    let is_of_path = |one: char| one.is_alphanumeric() || one == '_' || one == ':';
    let words = code.split(|one: char| !is_of_path(one));
    let paths = words.filter(|word| word.contains("::") && !word.starts_with(':'));
    let segments = |path: &str| path.split("::").map(ToOwned::to_owned).collect::<Segments>();
    paths.map(|path| segments(path.trim_end_matches(':'))).collect()
}

fn edges(modules: &Modules) -> Edges {
    let mut edges = Edges::new();
    for (place, module) in modules {
        for path in &module.uses {
            let Some((target, name)) = resolved(modules, place, path, 0) else { continue };
            let file = &modules[&target].file;
            if *file != module.file && !module.impls.contains(&name) {
                let to = edges.entry(module.file.clone()).or_default();
                to.entry(file.clone()).or_default().insert(name);
            }
        }
    }
    edges
}

/// The module that has the item of a path, and the item's name.
fn resolved(
    modules: &Modules,
    place: &[String],
    path: &[String],
    depth: usize,
) -> Option<(Segments, String)> {
    const DEPTH_MAX: usize = 8;
    let mut at = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => place.to_vec(),
        first => {
            let child = [place, &[first.to_owned()]].concat();
            modules.contains_key(&child).then(|| place.to_vec())?
        }
    };
    let mut rest = path;
    while let Some((first, behind)) = rest.split_first() {
        match first.as_str() {
            "crate" | "self" => {}
            "super" => drop(at.pop()),
            _ => break,
        }
        rest = behind;
    }
    while let Some((first, behind)) = rest.split_first() {
        let child = [at.clone(), vec![first.clone()]].concat();
        if !modules.contains_key(&child) {
            break;
        }
        (at, rest) = (child, behind);
    }
    let module = modules.get(&at)?;
    let name = rest.first().cloned().unwrap_or_else(|| "self".to_owned());
    if module.submodules.contains(&name) {
        return None; // Its file is that of another crate.
    }
    if depth < DEPTH_MAX {
        if let Some(export) = module.exports.get(&name) {
            return resolved(modules, &at, export, depth + 1);
        }
        if let [glob] = &module.export_globs[..] {
            let path = [glob.clone(), vec![name.clone()]].concat();
            return resolved(modules, &at, &path, depth + 1);
        }
    }
    Some((at, name))
}

/// The groups of files that depend on each other.
fn circles(edges: &Edges) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        edges.keys().map(|file| (file, reached_from(edges, file))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (file, behind) in &reached {
        let back = |other: &&&String| reached.get(**other).is_some_and(|all| all.contains(file));
        let circle: BTreeSet<String> =
            behind.iter().filter(back).map(|other| (**other).clone()).collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn reached_from<'e>(edges: &'e Edges, file: &'e String) -> BTreeSet<&'e String> {
    let (mut reached, mut todo) = (BTreeSet::new(), vec![file]);
    while let Some(at) = todo.pop() {
        for next in edges.get(at).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(next) {
                todo.push(next);
            }
        }
    }
    reached
}

fn described(folder: &str, circle: &BTreeSet<String>, edges: &Edges) -> String {
    let mut text = format!("crates/{folder}/src: {} files import each other:", circle.len());
    for from in circle {
        for (to, names) in edges.get(from).into_iter().flatten() {
            if circle.contains(to) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                text.push_str(&format!("\n    {from} takes {} of {to}", names.join(", ")));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges_of(files: &[(&str, &str)]) -> Edges {
        let mut modules: Modules = files
            .iter()
            .map(|(file, text)| (place_of(file), module((*file).to_owned(), text)))
            .collect();
        remove_tests(&mut modules);
        edges(&modules)
    }

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let circles = circles(&edges_of(files));
        circles.into_iter().map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn an_accepted_circle_must_exist() {
        let one = ("one.rs", "use crate::two::Two;\n");
        let circle = edges_of(&[one, ("two.rs", "use crate::one::One;\n")]);
        let chain = edges_of(&[one, ("two.rs", "")]);
        let faults_of = |accepted: &[&str], edges: &Edges| {
            let mut faults = Vec::new();
            compare("some", accepted, edges, &mut faults);
            faults
        };
        assert!(faults_of(&["two.rs"], &circle).is_empty() && faults_of(&[], &chain).is_empty());
        assert!(faults_of(&[], &circle)[0].contains("2 files import each other"));
        let stale = faults_of(&["two.rs", "gone.rs"], &chain);
        assert_eq!(stale.len(), 2, "{stale:?}");
        assert!(stale[0].starts_with("crates/some/src/two.rs is in no circle"), "{stale:?}");
    }

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let one = ("one.rs", "use crate::two::{\n    Two,\n    three::{Four, self},\n};\n");
        for two in ["use crate::one::One;\n", "fn f() { super::one::g() }\n", "use crate::*;\n"] {
            let lib = ("lib.rs", "mod one;\nmod two;\npub use one::One;\n");
            let found = circles_of(&[lib, one, ("two.rs", two), ("two/three.rs", "")]);
            let is_circle = two != "use crate::*;\n";
            assert_eq!(found.len(), usize::from(is_circle), "{two}: {found:?}");
        }
    }

    #[test]
    fn a_re_export_is_followed_to_the_item() {
        let lib = ("lib.rs", "mod one;\nmod two;\npub use one::One;\npub(crate) use two::Two;\n");
        let found =
            circles_of(&[lib, ("one.rs", "use crate::Two;\n"), ("two.rs", "use crate::One;\n")]);
        assert_eq!(found, [["one.rs", "two.rs"]]);
    }

    #[test]
    fn a_file_is_a_part_of_the_type_that_it_implements() {
        let one = ("one.rs", "use crate::two::Two;\nstruct One(Two);\n");
        let two = "use crate::one::One;\nimpl<'a> One {\n    fn f() {}\n}\n";
        assert!(circles_of(&[one, ("two.rs", two)]).is_empty());
        let two = "use crate::one::{One, g};\nimpl fmt::Display for One {}\n";
        assert_eq!(circles_of(&[one, ("two.rs", two)]), [["one.rs", "two.rs"]]);
    }

    #[test]
    fn tests_do_not_count() {
        let one = ("one.rs", "use crate::two::Two;\n");
        let two = "#[cfg(test)]\n#[allow(x)]\nmod tests {\n    use crate::one::One;\n}\n";
        assert!(circles_of(&[one, ("two.rs", two)]).is_empty());
        let lib = ("lib.rs", "#[cfg(test)]\nmod rig;\nmod one;\n");
        let rig = ("rig.rs", "use crate::one::One;\n");
        assert!(circles_of(&[lib, rig, ("one.rs", "use crate::rig::Rig;\n")]).is_empty());
    }
}
