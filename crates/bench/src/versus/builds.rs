//! Rows of programs that build and install: many small files are opened, read and made.

use super::place::Place;
use super::program::run;
use super::setup::Setup;
use super::workload::{Sample, Workload};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

pub(super) const WORKLOADS: [Workload; 3] = [
    Workload::programs("g++", &["g++"], |place, _| compile(place)),
    Workload::programs("cargo build", &["cargo"], |place, _| cargo_build(place)),
    Workload::programs("pip install", &["python3"], |place, _| pip_install(place)),
];

const SOURCE: &str = "#include <algorithm>\n#include <any>\n#include <array>\n#include <chrono>\n\
     #include <deque>\n#include <filesystem>\n#include <fstream>\n#include <functional>\n\
     #include <future>\n#include <iostream>\n#include <list>\n#include <map>\n#include <memory>\n\
     #include <mutex>\n#include <random>\n#include <regex>\n#include <set>\n#include <sstream>\n\
     #include <string>\n#include <thread>\n#include <unordered_map>\n#include <variant>\n\
     #include <vector>\nint main() { std::cout << \"lanefs\" << std::endl; }\n";

/// One source file whose headers all lie in the directory, too.
fn compile(place: &Place<'_>) -> Result<Sample> {
    let bundle = place.setup.once("bundle", |dir| bundle_headers(place.setup, dir))?;
    let (bundle, searched) = (bundle.join(HEADERS), bundle.join(SEARCHED));
    let headers = place.once(HEADERS, |dir| copy_tree(place.setup, &bundle, dir))?;
    let (name_count, byte_count) = size_of_tree(&bundle)?;
    place.fresh(|dir| {
        fs::write(dir.join("main.cpp"), SOURCE)?;
        // Headers are named relative to the working directory, as those of projects are.
        let mut command = Command::new("g++");
        command.args(["-std=c++17", "-nostdinc", "-nostdinc++"]).current_dir(&headers);
        command.arg("-c").arg(dir.join("main.cpp")).arg("-o").arg(dir.join("main.o"));
        for searched in fs::read_to_string(&searched)?.lines() {
            command.arg("-isystem").arg(below(Path::new(""), Path::new(searched)));
        }
        let ran = run(place.setup, &mut command)?;
        ensure!(fs::metadata(dir.join("main.o"))?.len() > 0, "the object file is empty");
        Ok(Sample::new(ran.elapsed, 1, "run").names(name_count).bytes(byte_count))
    })
}

/// The file with the directories in which the compiler searches headers, in their order.
const SEARCHED: &str = "searched";
/// The folder with the headers, each below its path.
const HEADERS: &str = "headers";

/// Copies all headers that the source needs.
fn bundle_headers(setup: &Setup, dir: &Path) -> Result<()> {
    let asked = run(setup, Command::new("g++").args(["-E", "-x", "c++", "-v", "/dev/null"]))?;
    let lines = asked.stderr.lines().skip_while(|line| !line.starts_with("#include <...>"));
    let mut searched = String::new();
    for line in lines.skip(1).take_while(|line| line.starts_with(' ')) {
        searched += &format!("{}\n", line.trim());
    }
    fs::write(dir.join(SEARCHED), searched)?;
    fs::write(dir.join("main.cpp"), SOURCE)?;
    let mut needed = Command::new("g++");
    needed.args(["-std=c++17", "-M", "main.cpp"]).current_dir(dir);
    for word in run(setup, &mut needed)?.stdout.split_whitespace() {
        if !word.starts_with('/') {
            continue;
        }
        let copy = below(&dir.join(HEADERS), Path::new(word));
        fs::create_dir_all(copy.parent().unwrap_or(dir))?;
        fs::copy(word, copy)?;
    }
    Ok(())
}

/// An absolute path as a path below `dir`. Compilers name some directories with `..` in them.
fn below(dir: &Path, path: &Path) -> PathBuf {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir => drop(parts.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    dir.join(parts.iter().collect::<PathBuf>())
}

fn copy_tree(setup: &Setup, from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        setup.interrupt.check()?;
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&copy)?;
            copy_tree(setup, &entry.path(), &copy)?;
        } else {
            fs::write(copy, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// Files and their bytes.
fn size_of_tree(dir: &Path) -> Result<(u64, u64)> {
    let (mut name_count, mut byte_count) = (0, 0);
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (names, bytes) = if entry.file_type()?.is_dir() {
            size_of_tree(&entry.path())?
        } else {
            (1, entry.metadata()?.len())
        };
        name_count += names;
        byte_count += bytes;
    }
    Ok((name_count, byte_count))
}

/// A crate without dependencies, from nothing.
fn cargo_build(place: &Place<'_>) -> Result<Sample> {
    let module_count = place.setup.counts.module_count;
    place.fresh(|dir| {
        fs::create_dir(dir.join("src"))?;
        let manifest =
            "[package]\nname = \"built\"\nversion = \"1.0.0\"\nedition = \"2021\"\n\n[workspace]\n";
        fs::write(dir.join("Cargo.toml"), manifest)?;
        let (mut declared, mut sum) = (String::new(), String::new());
        for index in 0..module_count {
            let source = format!("pub fn number() -> u64 {{\n    {index}\n}}\n");
            fs::write(dir.join(format!("src/module_{index}.rs")), source)?;
            declared += &format!("mod module_{index};\n");
            sum += &format!("module_{index}::number() + ");
        }
        let main = format!("{declared}\nfn main() {{\n    println!(\"{{}}\", {sum}0);\n}}\n");
        fs::write(dir.join("src/main.rs"), main)?;
        let mut command = Command::new("cargo");
        command.args(["build", "--offline", "--quiet"]).current_dir(dir);
        command.env("CARGO_TARGET_DIR", dir.join("target"));
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "CARGO_BUILD_TARGET"]
        {
            command.env_remove(name);
        }
        let ran = run(place.setup, &mut command)?;
        let built = fs::metadata(dir.join("target/debug/built")).context("nothing was built")?;
        ensure!(built.len() > 0, "the program is empty");
        Ok(Sample::new(ran.elapsed, 1, "run").names(module_count + 2))
    })
}

/// A wheel of `sys.argv[2]` modules at `sys.argv[1]`.
const MAKE_WHEEL: &str = r#"
import sys, zipfile
info = "lanefs_versus-1.0.dist-info/"
files = {f"lanefs_versus/module_{n}.py": f"NUMBER = {n}\n" for n in range(int(sys.argv[2]))}
files[info + "METADATA"] = "Metadata-Version: 2.1\nName: lanefs-versus\nVersion: 1.0\n"
files[info + "WHEEL"] = "Wheel-Version: 1.0\nGenerator: lanefs\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
files[info + "RECORD"] = "".join(f"{name},,\n" for name in [*files, info + "RECORD"])
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
"#;
const WHEEL: &str = "lanefs_versus-1.0-py3-none-any.whl";

/// A local wheel into a virtual environment in the directory.
fn pip_install(place: &Place<'_>) -> Result<Sample> {
    let module_count = place.setup.counts.module_count;
    let wheel = place.setup.once("wheel", |dir| {
        let mut python = Command::new("python3");
        python.args(["-c", MAKE_WHEEL]).arg(dir.join(WHEEL)).arg(module_count.to_string());
        run(place.setup, &mut python).map(drop)
    })?;
    let environment = place.once("environment", |dir| {
        let mut python = Command::new("python3");
        run(place.setup, python.args(["-m", "venv"]).arg(dir)).map(drop)
    })?;
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "install"]);
    pip.args(["--no-index", "--no-deps", WHEEL]).current_dir(&wheel);
    pip.env("PIP_CONFIG_FILE", "/dev/null").env("PIP_ROOT_USER_ACTION", "ignore");
    let ran = run(place.setup, &mut pip)?;
    let installed = module_count_of(&environment)?;
    ensure!(installed == module_count, "{installed} modules are there, not {module_count}");
    uninstall(&environment)?;
    Ok(Sample::new(ran.elapsed, 1, "run").names(module_count))
}

fn module_count_of(environment: &Path) -> Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(site_packages(environment)?.join("lanefs_versus"))? {
        count += u64::from(entry?.path().extension().is_some_and(|kind| kind == "py"));
    }
    Ok(count)
}

/// Removes what the wheel brought. Another run of pip would take as long as the measured one.
fn uninstall(environment: &Path) -> Result<()> {
    let packages = site_packages(environment)?;
    for name in ["lanefs_versus", "lanefs_versus-1.0.dist-info"] {
        fs::remove_dir_all(packages.join(name)).with_context(|| format!("cannot remove {name}"))?;
    }
    Ok(())
}

/// Where modules are: in the folder of the only version of Python.
fn site_packages(environment: &Path) -> Result<PathBuf> {
    let version = fs::read_dir(environment.join("lib"))?.next().context("no Python is there")?;
    Ok(version?.path().join("site-packages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_a_directory_has_no_parents_in_it() {
        let path = below(Path::new("/bundle"), Path::new("/usr/lib/gcc/12/../../../include/c++"));
        assert_eq!(path, Path::new("/bundle/usr/include/c++"));
    }
}
