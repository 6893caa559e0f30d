//! Which files of a crate name which others, and whether they do so in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::source::{Named, Source};

/// The path of a module in its crate, without `crate`.
type Module = Vec<String>;

/// The modules of a crate.
#[derive(Debug, Default)]
pub(super) struct Crate {
    modules: BTreeMap<Module, File>,
}

#[derive(Debug)]
struct File {
    /// Below the folder of the crate's code.
    path: PathBuf,
    source: Source,
}

/// An arrow from one neighbour to another in a folder, and a line that draws it.
type Arrows = BTreeMap<(String, String), String>;

/// What a folder's own file is called among its neighbours.
const MOD: &str = "mod";

impl Crate {
    pub(super) fn read(folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        collect(folder, folder, &mut files);
        Self::of(files)
    }

    /// A crate whose files contain these texts.
    pub(super) fn of(texts: BTreeMap<PathBuf, String>) -> Self {
        let mut modules: BTreeMap<Module, File> = texts
            .into_iter()
            .map(|(path, text)| {
                let source = Source::read(&text);
                (module_of(&path), File { path, source })
            })
            .collect();
        let tests: BTreeSet<Module> = modules
            .iter()
            .flat_map(|(module, file)| {
                let names = file.source.test_modules.iter();
                names.map(|name| [module.as_slice(), std::slice::from_ref(name)].concat())
            })
            .collect();
        modules.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        Self { modules }
    }

    /// The circles among the files and folders of each folder, each with the lines that draw it.
    ///
    /// A folder's own `mod.rs` is one of them, unless the folder is among `parents`: there it declares what all others are
    /// about, and has them as its parts. An arrow that begins at one of `sum_types` does not count: such a file lists what its
    /// neighbours are about.
    pub(super) fn circles(&self, sum_types: &[&str], parents: &[&str]) -> Vec<String> {
        let folders = self.folders(sum_types, parents);
        let circles = folders.iter().filter(|(folder, _)| !folder.is_empty());
        circles
            .filter_map(|(folder, arrows)| {
                let lines = circle(arrows)?;
                Some(format!("in {}: {}", folder.join("/"), lines.join(", ")))
            })
            .collect()
    }

    /// The arrows of a folder that lead from one of these neighbours to one that stands before it, and the neighbours that are
    /// not among them.
    pub(super) fn out_of_order(&self, folder: &str, order: &[&str]) -> Vec<String> {
        let folders = self.folders(&[], &[]);
        let path: Module = folder.split('/').map(str::to_owned).collect();
        let rank = |name: &str| order.iter().position(|one| *one == name);
        let arrows = folders.get(&path);
        let wrong = arrows.into_iter().flatten().filter(|((one, other), _)| {
            let (one, other) = (rank(one), rank(other));
            one.is_none() || other.is_none() || one > other
        });
        wrong
            .map(|((one, other), line)| format!("in {folder}: {one} -> {other} ({line})"))
            .collect()
    }

    /// The arrows of each folder.
    fn folders(&self, sum_types: &[&str], parents: &[&str]) -> BTreeMap<Module, Arrows> {
        let mut folders: BTreeMap<Module, Arrows> = BTreeMap::new();
        for (from, file) in &self.modules {
            for (line, to) in self.named_by(from, &file.source) {
                let common = from.iter().zip(&to).take_while(|(one, other)| one == other);
                let folder = common.count();
                if sum_types.contains(&from.join("/").as_str()) {
                    continue;
                }
                let is_parent = parents.contains(&from[..folder].join("/").as_str());
                let neighbour = |module: &Module| match module.get(folder) {
                    None if is_parent => None,
                    None => Some(MOD.to_owned()),
                    name => name.cloned(),
                };
                if let (Some(one), Some(other)) = (neighbour(from), neighbour(&to)) {
                    let arrows = folders.entry(from[..folder].to_vec()).or_default();
                    arrows
                        .entry((one, other))
                        .or_insert_with(|| format!("{}:{line}", file.path.display()));
                }
            }
        }
        folders
    }

    /// The modules that a file names, with the lines.
    fn named_by(&self, module: &Module, source: &Source) -> BTreeSet<(usize, Module)> {
        let imports = source.imports.iter();
        let imports = imports.filter(|import| !import.is_passed_on);
        let named = imports.map(|import| &import.named).chain(&source.paths);
        let found = named.filter_map(|Named { line, path }| {
            let path = self.absolute(module, path)?;
            Some((*line, self.resolve(&path, 0)?))
        });
        found.filter(|(_, other)| other != module).collect()
    }

    /// A path from the root of the crate; `None` for another crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let first = path.first()?.as_str();
        match first {
            "crate" => Some(path[1..].to_vec()),
            "self" | "super" => {
                let up = path
                    .iter()
                    .take_while(|word| ["self", "super"].contains(&word.as_str()));
                let (words, ups) = up.fold((0, 0), |(words, ups), word| {
                    (words + 1, ups + usize::from(word == "super"))
                });
                let parent = module.get(..module.len().checked_sub(ups)?)?;
                Some([parent, &path[words..]].concat())
            }
            name => {
                let file = self.modules.get(module)?;
                let is_own = file.source.modules.contains(name);
                is_own.then(|| [module.as_slice(), path].concat())
            }
        }
    }

    /// The module that declares what a path names, also if others pass it on.
    fn resolve(&self, path: &[String], depth: usize) -> Option<Module> {
        let mut module = Module::new();
        for (at, name) in path.iter().enumerate() {
            let inner = [module.as_slice(), std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&inner) {
                module = inner;
                continue;
            }
            let Some(file) = self.modules.get(&module) else {
                return Some(module);
            };
            if file.source.items.contains(name) || depth > 8 {
                return Some(module);
            }
            for import in &file.source.imports {
                let target = self.absolute(&module, &import.named.path);
                if import.alias == *name {
                    let target = [target?.as_slice(), &path[at + 1..]].concat();
                    return self.resolve(&target, depth + 1);
                }
                let declares = |module: &Module| {
                    let file = self.modules.get(module);
                    file.is_some_and(|file| file.source.items.contains(name))
                };
                if import.alias == "*"
                    && let Some(target) = target.and_then(|path| self.resolve(&path, depth + 1))
                    && declares(&target)
                {
                    return Some(target);
                }
            }
            return Some(module);
        }
        Some(module)
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            files.insert(path.strip_prefix(root).unwrap().to_owned(), text);
        }
    }
}

/// The module of a file: `hold/lease.rs` and `hold/lease/mod.rs` are both `hold::lease`.
fn module_of(path: &Path) -> Module {
    let names = path.with_extension("");
    let names = names.iter().map(|name| name.to_str().unwrap().to_owned());
    let mut module: Module = names.collect();
    if module
        .last()
        .is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str()))
    {
        module.pop();
    }
    module
}

/// The arrows that lie on circles, if any do.
fn circle(arrows: &Arrows) -> Option<Vec<String>> {
    let reach = |start: &String| {
        let mut reached = BTreeSet::new();
        let mut next = vec![start];
        while let Some(from) = next.pop() {
            for (one, other) in arrows.keys() {
                if one == from && reached.insert(other) {
                    next.push(other);
                }
            }
        }
        reached
    };
    let on_circle = arrows
        .iter()
        .filter(|((one, other), _)| reach(other).contains(one));
    let lines: Vec<_> = on_circle
        .map(|((one, other), line)| format!("{one} -> {other} ({line})"))
        .collect();
    (!lines.is_empty()).then_some(lines)
}
