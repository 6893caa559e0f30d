//! Parameters that `async_trait` destructures inside the block that it generates for a body.
//!
//! `async_trait` renames a parameter that is a pattern, and starts the block with
//! `let PATTERN = { let __arg1 = __arg1; __arg1 };`. A key may use the variables of the pattern, so these statements are
//! moved in front of the acquisition.

use proc_macro2::{Delimiter, Group, Ident, TokenTree};
use syn::{Local, Stmt};

use super::binding::Binding;

/// The destructuring statements of a block, and the variables that they replace and introduce.
#[derive(Default)]
pub(crate) struct AsyncTraitParams {
    pub(crate) statements: Vec<Local>,
    /// The renamed parameters, which the statements consume.
    replaced: Vec<Ident>,
}

impl AsyncTraitParams {
    /// Moves the statements out of a block. Returns them and the remaining block.
    pub(crate) fn extract(block: &Group) -> (Self, Group) {
        let mut params = Self::default();
        let remaining = retain(block, |trees| !params.add(trees));
        (params, remaining)
    }

    fn add(&mut self, trees: &[TokenTree]) -> bool {
        let Some(parameter) = destructured_param(without_attributes(trees)) else {
            return false;
        };
        let Ok(Stmt::Local(statement)) = syn::parse2(trees.iter().cloned().collect()) else {
            return false;
        };
        self.statements.push(statement);
        self.replaced.push(parameter);
        true
    }

    pub(crate) fn is_replaced(&self, parameter: &Ident) -> bool {
        self.replaced.contains(parameter)
    }

    /// The variables of the patterns.
    pub(crate) fn bindings(&self) -> Vec<Binding> {
        let statements = self.statements.iter();
        statements
            .flat_map(|statement| Binding::of_pattern(&statement.pat, &statement.attrs))
            .collect()
    }
}

/// Whether the parameter has the name that `async_trait` gives to a pattern and to `_`.
pub(crate) fn is_renamed(parameter: &Ident) -> bool {
    parameter.to_string().starts_with("__arg")
}

/// The block without the statement `let name = name;`, by which `async_trait` moves a parameter into the block.
pub(crate) fn without_move_of(name: &Ident, block: &Group) -> Group {
    retain(block, |trees| !is_move_of(name, trees))
}

/// The block without the tokens that are not `wanted`. These are asked for one by one, but a `let` statement as a whole.
fn retain(block: &Group, mut wanted: impl FnMut(&[TokenTree]) -> bool) -> Group {
    let mut rest = Vec::new();
    let mut trees: Vec<_> = block.stream().into_iter().collect();
    while !trees.is_empty() {
        let later = match let_statement_end(&rest, &trees) {
            Some(end) => trees.split_off(end),
            None => trees.split_off(1),
        };
        if wanted(&trees) {
            rest.append(&mut trees);
        }
        trees = later;
    }
    let mut retained = Group::new(Delimiter::Brace, rest.into_iter().collect());
    retained.set_span(block.span());
    retained
}

/// The length of the `let` statement at the start of `trees`.
///
/// `before` are the tokens in front of it. They tell a statement from an `if let`.
fn let_statement_end(before: &[TokenTree], trees: &[TokenTree]) -> Option<usize> {
    let starts = before.last().is_none_or(|tree| match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        other => is_semicolon(other),
    });
    let is_let = matches!(without_attributes(trees), [TokenTree::Ident(word), ..] if word == "let");
    if !(starts && is_let) {
        return None;
    }
    let end = trees.iter().position(is_semicolon)?;
    Some(end + 1)
}

fn is_semicolon(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ';')
}

/// The tokens behind the attributes of a statement: `async_trait` repeats the `#[cfg]` of a parameter there.
fn without_attributes(mut trees: &[TokenTree]) -> &[TokenTree] {
    while let [TokenTree::Punct(hash), TokenTree::Group(group), rest @ ..] = trees {
        if hash.as_char() != '#' || group.delimiter() != Delimiter::Bracket {
            break;
        }
        trees = rest;
    }
    trees
}

/// The parameter of `let PATTERN = { let __arg1 = __arg1; __arg1 };`.
fn destructured_param(trees: &[TokenTree]) -> Option<Ident> {
    let [_, .., equals, TokenTree::Group(block), _] = trees else {
        return None;
    };
    let inner: Vec<_> = block.stream().into_iter().collect();
    let [
        word,
        TokenTree::Ident(again),
        _,
        TokenTree::Ident(parameter),
        _,
        last,
    ] = inner.as_slice()
    else {
        return None;
    };
    let same = again == parameter && *parameter == last.to_string();
    (equals.to_string() == "=" && word.to_string() == "let" && same && is_renamed(parameter))
        .then(|| parameter.clone())
}

/// Whether this is `let name = name;` or `let mut name = name;`.
fn is_move_of(name: &Ident, trees: &[TokenTree]) -> bool {
    let [word, pattern @ .., equals, TokenTree::Ident(moved), _] = without_attributes(trees) else {
        return false;
    };
    let variable = match pattern {
        [TokenTree::Ident(variable)] => variable,
        [word, TokenTree::Ident(variable)] if word.to_string() == "mut" => variable,
        _ => return false,
    };
    word.to_string() == "let" && equals.to_string() == "=" && variable == name && moved == name
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenStream;

    use super::*;

    fn extract(block: &str) -> (AsyncTraitParams, String) {
        let (params, rest) = AsyncTraitParams::extract(&syn::parse_str(block).unwrap());
        (params, rest.to_string())
    }

    #[test]
    fn statements_that_destructure_a_parameter_are_moved_out() {
        let (params, rest) = extract(
            "{ if let Some(__ret) = None::<u8> { return __ret; } let __self = self; \
             let (a, Order { id, .. }) = { let __arg1 = __arg1; __arg1 }; let b = b; \
             #[cfg(unix)] let [c, _] = { let __arg3 = __arg3; __arg3 }; let __ret: u8 = { let x = 1; x }; __ret }",
        );
        let bindings = params.bindings();
        let names: Vec<_> = bindings.iter().map(|b| b.name.to_string()).collect();
        assert_eq!(names, ["a", "id", "c"]);
        assert_eq!(params.replaced, ["__arg1", "__arg3"]);
        assert_eq!(bindings[2].cfgs.len(), 1, "the cfg of its parameter");
        assert!(!rest.contains("cfg"), "{rest}");
        assert!(!rest.contains("__arg"), "{rest}");
        for stays in [
            "let __self = self ;",
            "let b = b ;",
            "let x = 1 ;",
            "return __ret ;",
        ] {
            assert!(rest.contains(stays), "{rest}");
        }
    }

    #[test]
    fn only_the_move_of_the_parameter_leaves_the_block() {
        let name = syn::parse_str("name").unwrap();
        for (block, rest) in [
            ("{ let name = name; let b = b; 1 }", "{ let b = b; 1 }"),
            ("{ f(); let mut name = name; }", "{ f(); }"),
            ("{ let name = other; }", "{ let name = other; }"),
            ("{ let name = name(); }", "{ let name = name(); }"),
            ("{ { let name = name; } }", "{ { let name = name; } }"),
            ("{ #[cfg(unix)] let name = name; f() }", "{ f() }"),
        ] {
            let rest: TokenStream = rest.parse().unwrap();
            let without = without_move_of(&name, &syn::parse_str(block).unwrap());
            assert_eq!(without.to_string(), rest.to_string(), "{block}");
        }
    }

    #[test]
    fn statements_of_the_user_stay() {
        for block in [
            "{ let (a, b) = { let pair = pair; pair }; a + b }",
            "{ let Some(a) = b else { return; }; let x = { let __arg1 = f(); __arg2 }; }",
            "{ }",
        ] {
            let (params, rest) = extract(block);
            assert!(params.statements.is_empty(), "{block}");
            let same: TokenStream = block.parse().unwrap();
            assert_eq!(rest, same.to_string());
        }
    }
}
