//! What a file of Rust names: its paths, its imports, the modules and the items that it declares.
//!
//! Comments, texts and what is compiled for unit tests alone do not count.

use std::collections::BTreeSet;

/// A path in the code of a file, as it is written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) line: usize,
    pub(super) path: Vec<String>,
}

/// One name that a file imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) named: Named,
    /// What the file calls it, or `*`.
    pub(super) alias: String,
    /// Whether the file only passes it on to others.
    pub(super) is_passed_on: bool,
}

/// What stands in a file.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) imports: Vec<Import>,
    /// The paths outside of imports.
    pub(super) paths: Vec<Named>,
    /// The modules that are files of their own.
    pub(super) modules: BTreeSet<String>,
    /// Those of them that only unit tests have.
    pub(super) test_modules: BTreeSet<String>,
    pub(super) items: BTreeSet<String>,
}

impl Source {
    pub(super) fn read(text: &str) -> Self {
        let mut source = Self::default();
        let code = source.without_tests(without_comments(text));
        let (body, declared) = without_imports(&code);
        let words = words(&body);
        source.read_items(&words);
        source.read_paths(&words);
        for (line, is_public, tree) in declared {
            let mut names = Vec::new();
            expand(&tree, &[], &mut names);
            for (path, alias) in names {
                let is_used = words.iter().any(|(_, word)| *word == alias);
                let named = Named { line, path };
                source.imports.push(Import {
                    named,
                    is_passed_on: is_public && !is_used,
                    alias,
                });
            }
        }
        source
    }

    /// Removes what stands behind `#[cfg(test)]`, and notes the files that are declared there.
    fn without_tests(&mut self, mut code: String) -> String {
        const MARK: &str = "#[cfg(test)]";
        while let Some(start) = code.find(MARK) {
            let rest = &code[start + MARK.len()..];
            let end = start + MARK.len() + end_of_item(rest);
            let item = &code[start + MARK.len()..end];
            let words: Vec<_> = words(item).into_iter().map(|(_, word)| word).collect();
            if let Some(at) = words.iter().position(|word| word == "mod")
                && words.get(at + 2).is_some_and(|next| next == ";")
            {
                self.test_modules.extend(words.get(at + 1).cloned());
            }
            let lines = "\n".repeat(code[start..end].matches('\n').count());
            code.replace_range(start..end, &lines);
        }
        code
    }

    fn read_items(&mut self, words: &[(usize, String)]) {
        for at in 1..words.len() {
            let (before, word) = (words[at - 1].1.as_str(), &words[at].1);
            let is_item = [
                "struct", "enum", "trait", "fn", "const", "static", "type", "union",
            ]
            .contains(&before);
            if is_item {
                self.items.insert(word.clone());
            }
            if before == "mod" && words.get(at + 1).is_some_and(|(_, next)| next == ";") {
                self.modules.insert(word.clone());
            }
        }
    }

    fn read_paths(&mut self, words: &[(usize, String)]) {
        let is = |at: usize, wanted: &str| words.get(at).is_some_and(|(_, word)| word == wanted);
        let mut at = 0;
        while at < words.len() {
            let (line, first) = &words[at];
            let is_in_path = at > 0 && (is(at - 1, "::") || is(at - 1, "$") || is(at - 1, "in"));
            let begins = ["crate", "super", "self"].contains(&first.as_str())
                || self.modules.contains(first);
            if !begins || is_in_path || !is(at + 1, "::") {
                at += 1;
                continue;
            }
            let mut path = vec![first.clone()];
            while is(at + 1, "::") && words.get(at + 2).is_some_and(|(_, word)| is_name(word)) {
                path.push(words[at + 2].1.clone());
                at += 2;
            }
            self.paths.push(Named { line: *line, path });
            at += 1;
        }
    }
}

/// The code of a file, line by line, without comments, texts and what is compiled for unit tests alone.
pub(super) fn code_of(text: &str) -> String {
    Source::default().without_tests(without_comments(text))
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The words and signs of a text, each with its line.
fn words(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut chars = code.char_indices().peekable();
    while let Some((start, c)) = chars.next() {
        let mut end = start + c.len_utf8();
        if c == '\n' {
            line += 1;
        }
        if c.is_whitespace() {
            continue;
        }
        if c.is_alphanumeric() || c == '_' {
            while let Some((at, c)) = chars.next_if(|(_, c)| c.is_alphanumeric() || *c == '_') {
                end = at + c.len_utf8();
            }
        } else if c == ':'
            && let Some((at, _)) = chars.next_if(|(_, c)| *c == ':')
        {
            end = at + 1;
        }
        found.push((line, code[start..end].to_owned()));
    }
    found
}

/// How long the item is that a text begins with: until its `;`, or the end of its block.
fn end_of_item(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        let ends = match c {
            '}' => depth == 0,
            ';' | ',' => depth == 0,
            _ => false,
        };
        if ends {
            return at + 1;
        }
        if depth < 0 {
            return at;
        }
    }
    text.len()
}

/// The code without comments, and with empty texts.
fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if c == '"' {
            end_of_text(rest)
        } else if let Some(marks) = raw_text(rest, &code) {
            let end = format!("\"{}", "#".repeat(marks));
            let inner = marks + 2;
            rest[inner..]
                .find(&end)
                .map_or(rest.len(), |at| inner + at + end.len())
        } else if c == '\'' {
            end_of_character(rest)
        } else {
            0
        };
        if skipped == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            code.push_str(&"\n".repeat(rest[..skipped].matches('\n').count()));
            rest = &rest[skipped..];
        }
    }
    code
}

/// The length of a text in quotation marks.
fn end_of_text(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The number of `#` of the raw text that begins here, if one does.
fn raw_text(rest: &str, before: &str) -> Option<usize> {
    let marks = rest.strip_prefix('r')?;
    let after = marks.trim_start_matches('#');
    let is_name = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    (after.starts_with('"') && !is_name).then(|| marks.len() - after.len())
}

/// The length of a character in single quotation marks; 0 for a lifetime.
fn end_of_character(text: &str) -> usize {
    if text[1..].starts_with('\\') {
        return text[2..]
            .char_indices()
            .skip(1)
            .find(|(_, c)| *c == '\'')
            .map_or(0, |(at, _)| at + 3);
    }
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// An import: its line, whether it is `pub`, and what it imports.
type Declared = (usize, bool, String);

/// The code without its imports, and these.
fn without_imports(code: &str) -> (String, Vec<Declared>) {
    let (mut body, mut imports) = (String::new(), Vec::new());
    let mut open: Option<Declared> = None;
    for (at, line) in code.split_inclusive('\n').enumerate() {
        let trimmed = line.trim();
        if open.is_none() {
            let (is_public, rest) = match trimmed.strip_prefix("pub") {
                Some(rest) => (
                    true,
                    rest.trim_start_matches(|c: char| c != ' ').trim_start(),
                ),
                None => (false, trimmed),
            };
            open = rest
                .strip_prefix("use ")
                .map(|_| (at + 1, is_public, String::new()));
            if let (Some(import), Some(tree)) = (&mut open, rest.strip_prefix("use ")) {
                import.2.push_str(tree);
            }
        } else if let Some(import) = &mut open {
            import.2.push_str(trimmed);
        }
        match &open {
            None => body.push_str(line),
            Some(_) => body.push('\n'),
        }
        if let Some(import) = open.take_if(|import| import.2.ends_with(';')) {
            imports.push(import);
        }
    }
    (body, imports)
}

/// The paths of a tree of imports, each with the name that the file has for it.
fn expand(tree: &str, before: &[String], names: &mut Vec<(Vec<String>, String)>) {
    let tree = tree.trim().trim_end_matches(';').trim();
    if let Some(inner) = tree
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
    {
        let mut depth = 0;
        let parts = inner.split(|c: char| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            c == ',' && depth == 0
        });
        for part in parts.filter(|part| !part.trim().is_empty()) {
            expand(part, before, names);
        }
        return;
    }
    let path = |name: &str| [before, &[name.trim().to_owned()]].concat();
    match tree.split_once("::") {
        Some((first, rest)) => expand(rest, &path(first), names),
        None if tree == "*" => names.push((before.to_vec(), "*".to_owned())),
        None => {
            let (name, alias) = tree.split_once(" as ").unwrap_or((tree, tree));
            let (path, alias) = match name.trim() {
                "self" => (before.to_vec(), before.last().map_or(alias, |last| last)),
                name => (path(name), alias),
            };
            names.push((path, alias.trim().to_owned()));
        }
    }
}
