//! Modules form no circles: whoever reads a file never has to read a second one first that needs the first.
//!
//! The test reads the `use` declarations and the paths in the code of every product file, and looks for circles among
//! the files of a crate, and among the folders and files in one folder. A module may use its own submodules freely: they
//! are parts of it. Test modules do not count.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use sources::{files_below, root};

/// The path of a module below its crate, as in `crate::a::b`.
type Module = Vec<String>;

type Graph = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

fn module_of(file: &Path, src: &Path) -> Module {
    let inner = file
        .strip_prefix(src)
        .expect("below src")
        .with_extension("");
    let mut module: Module = inner
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if let Some("mod" | "lib" | "main") = module.last().map(String::as_str) {
        module.pop();
    }
    module
}

/// The code of a file without comments and without its test module at the end.
fn product_code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let test_module = line == "#[cfg(test)]"
            && lines
                .peek()
                .is_some_and(|next| next.contains("mod tests {"));
        if test_module {
            break;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}

const OF_TESTS: [&str; 2] = ["#[cfg(test)]", "#[cfg(feature = \"generators\")]"];

/// The modules that a file declares for tests alone: `#[cfg(test)] mod name;`, or behind the feature `generators`.
fn test_modules(module: &Module, text: &str) -> Vec<Module> {
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.windows(2);
    let names = pairs
        .filter(|pair| OF_TESTS.contains(&pair[0]))
        .filter_map(|pair| pair[1].split("mod ").nth(1)?.strip_suffix(';'));
    names
        .map(|name| module.iter().cloned().chain([name.to_owned()]).collect())
        .collect()
}

/// The parts of a `use` tree between commas at its top.
fn parts(tree: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&tree[start..]);
    found
}

/// Adds every path of a `use` tree, each behind `prefix`.
fn expand(tree: &str, prefix: &[String], found: &mut Vec<Vec<String>>) {
    for part in parts(tree) {
        let (head, inner) = match part.find('{') {
            Some(open) => {
                let close = part.rfind('}').unwrap_or(part.len());
                (&part[..open], Some(&part[open + 1..close]))
            }
            None => (part, None),
        };
        let head = head.split(" as ").next().unwrap_or_default();
        let names = head
            .split("::")
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let path: Vec<String> = prefix
            .iter()
            .cloned()
            .chain(names.map(str::to_owned))
            .collect();
        match inner {
            Some(inner) => expand(inner, &path, found),
            None => found.push(path),
        }
    }
}

/// Every path in the code that begins with `crate::`, `super::` or `self::`.
fn paths(code: &str) -> Vec<Vec<String>> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| word(c) || c == ':') {
                continue;
            }
            let rest = &code[at..];
            let end = rest
                .find(|c: char| !word(c) && c != ':')
                .unwrap_or(rest.len());
            let tree = match rest[end..].starts_with('{') && rest[..end].ends_with("::") {
                false => &rest[..end],
                true => {
                    let mut depth = 0;
                    let close = rest[end..].find(|c| {
                        depth += i32::from(c == '{') - i32::from(c == '}');
                        depth == 0
                    });
                    &rest[..close.map_or(rest.len(), |close| end + close + 1)]
                }
            };
            expand(tree, &[], &mut found);
        }
    }
    found
}

/// The module that a path leads to: the longest part of it that is one.
fn resolve(path: &[String], from: &Module, modules: &BTreeMap<Module, String>) -> Option<Module> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (&from[..0], &path[1..]),
        "self" => (&from[..], &path[1..]),
        _ => (&from[..from.len().checked_sub(supers)?], &path[supers..]),
    };
    let mut full: Module = base.iter().chain(rest).cloned().collect();
    while !full.is_empty() && !modules.contains_key(&full) {
        full.pop();
    }
    (!full.is_empty()).then_some(full)
}

fn graph(src: &Path) -> Graph {
    let files = files_below(src, &["rs"]);
    let read = |file: &PathBuf| {
        (
            module_of(file, src),
            fs::read_to_string(file).expect("UTF-8"),
        )
    };
    let modules: BTreeMap<Module, String> = files.iter().map(read).collect();
    let of_tests: Vec<Module> = modules
        .iter()
        .flat_map(|(module, text)| test_modules(module, text))
        .collect();
    let is_product = |module: &Module| !of_tests.iter().any(|test| module.starts_with(test));
    let mut graph = Graph::new();
    for (module, text) in modules.iter().filter(|(module, _)| is_product(module)) {
        for path in paths(&product_code(text)) {
            let Some(target) = resolve(&path, module, &modules) else {
                continue;
            };
            if is_product(&target) && !target.starts_with(module) {
                let names = graph.entry(module.clone()).or_default();
                let names = names.entry(target).or_default();
                names.insert(path.last().cloned().unwrap_or_default());
            }
        }
    }
    graph
}

/// All modules that can be reached from one.
fn reach(graph: &Graph, from: &Module) -> BTreeSet<Module> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from.clone()];
    while let Some(module) = open.pop() {
        for target in graph.get(&module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(target.clone()) {
                open.push(target.clone());
            }
        }
    }
    reached
}

/// The edges that are part of a circle, each with the names that it carries.
fn circles(graph: &Graph) -> Vec<String> {
    let reached: BTreeMap<_, _> = graph
        .keys()
        .map(|from| (from, reach(graph, from)))
        .collect();
    let mut found = Vec::new();
    for (from, targets) in graph {
        for (to, names) in targets {
            if reached.get(to).is_some_and(|back| back.contains(from)) {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                found.push(format!(
                    "{} -> {}: {}",
                    from.join("::"),
                    to.join("::"),
                    names.join(", ")
                ));
            }
        }
    }
    found
}

#[test]
fn modules_form_no_circles() {
    let mut failures = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates") {
        let path = entry.expect("directory entry").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let found = circles(&graph(&path.join("src")));
        failures.extend(found.into_iter().map(|edge| format!("{name}: {edge}")));
    }
    failures.sort();
    assert!(
        failures.is_empty(),
        "modules that need each other; move what both need below both:\n{}",
        failures.join("\n")
    );
}

/// Folders and files in one folder that need each other: the crate, the folder, and who they are.
const TIED: &[(&str, &str, &[&str])] = &[
    // A key has the form of the kernel that uses it, and the kernels work on batches of jobs with keys.
    (
        "crypto",
        "",
        &[
            "ah",
            "cost",
            "cpu",
            "engine",
            "esp",
            "job",
            "key",
            "lookaside",
            "selection",
            "self_test",
        ],
    ),
    // The SA has the fragments that arrive for it, whose fragments are checked against the SA.
    (
        "ipsec",
        "",
        &["event", "fragment", "icmp_errors", "sa", "spd"],
    ),
];

/// The edges among the children of a folder, each child with all that is in it.
fn among_children(graph: &Graph, folder: &Module) -> Graph {
    let child = |module: &Module| {
        let inner = module.strip_prefix(folder.as_slice())?;
        inner.first().map(|name| vec![name.clone()])
    };
    let mut children = Graph::new();
    for (from, targets) in graph {
        for (to, names) in targets {
            if let (Some(from), Some(to)) = (child(from), child(to))
                && from != to
            {
                let all = children.entry(from).or_default().entry(to).or_default();
                all.extend(names.iter().cloned());
            }
        }
    }
    children
}

#[test]
fn folders_form_no_circles() {
    let mut failures = Vec::new();
    let mut tied = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates") {
        let path = entry.expect("directory entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let graph = graph(&path.join("src"));
        let modules = graph.keys();
        let folders: BTreeSet<Module> = modules
            .flat_map(|module| (0..module.len()).map(|len| module[..len].to_vec()))
            .collect();
        for folder in folders {
            let children = among_children(&graph, &folder);
            let folder = folder.join("/");
            let known = TIED.iter().find(|one| one.0 == name && one.1 == folder);
            let free = |edge: &String| {
                let ends = edge
                    .split(": ")
                    .next()
                    .and_then(|ends| ends.split_once(" -> "));
                let in_known = |end: &str| known.is_some_and(|one| one.2.contains(&end));
                !ends.is_some_and(|(from, to)| in_known(from) && in_known(to))
            };
            let found = circles(&children);
            if found.len() > found.iter().filter(|edge| free(edge)).count() {
                tied.extend(known.map(|one| (one.0, one.1)));
            }
            let found = found.into_iter().filter(free);
            failures.extend(found.map(|edge| format!("{name}/{folder}: {edge}")));
        }
    }
    failures.sort();
    assert!(
        failures.is_empty(),
        "folders that need each other; move what both need below both:\n{}",
        failures.join("\n")
    );
    let listed: BTreeSet<_> = TIED.iter().map(|one| (one.0, one.1)).collect();
    assert_eq!(listed, tied, "the list names folders that are free now");
}

#[test]
fn a_circle_is_found() {
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
    let names = ["a", "b", "b::c", "d"];
    let modules: BTreeMap<Module, String> = names
        .iter()
        .map(|name| (module(name), String::new()))
        .collect();
    let code = "use crate::{a::{Left, Right as R}, d};\nfn f() { super::super::a::g() }";
    let found: BTreeSet<_> = paths(code)
        .iter()
        .filter_map(|path| resolve(path, &module("b::c"), &modules))
        .collect();
    assert_eq!(found, [module("a"), module("d")].into());

    let edge = |from: &str, to: &str| {
        let names = BTreeSet::from(["Name".to_owned()]);
        (module(from), BTreeMap::from([(module(to), names)]))
    };
    let graph = Graph::from([edge("a", "b::c"), edge("b::c", "d"), edge("d", "a")]);
    assert_eq!(circles(&graph).len(), 3);
    let graph = Graph::from([edge("a", "b::c"), edge("b::c", "d")]);
    assert_eq!(circles(&graph), [""; 0]);
    // A folder and a file need each other by way of two files in the folder, which do not.
    let graph = Graph::from([edge("a::one", "b"), edge("b", "a::two")]);
    assert_eq!(circles(&graph), [""; 0]);
    assert_eq!(circles(&among_children(&graph, &Module::new())).len(), 2);
}
