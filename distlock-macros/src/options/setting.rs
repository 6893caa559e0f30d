//! The list `name = value, ..`. Each name is known and set once; the values are parsed later.

use proc_macro2::Ident;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, LitStr, Result, Token};

use super::keyword;
use super::mode::Mode;
use crate::errors::Errors;

/// Every option, with an example for error messages.
const OPTIONS: [(&str, &str); 16] = [
    ("key", r#"key = "pay:<id>""#),
    ("keys", r#"keys = ["order:<id>", "stock:<item>"]"#),
    ("wait", r#"wait = "5s""#),
    ("lease", r#"lease = "20s""#),
    ("max_hold", r#"max_hold = "10m""#),
    ("max_waiters", "max_waiters = 100"),
    ("mode", r#"mode = "write""#),
    ("client", "client = self.locks"),
    ("on_busy", "on_busy = |_| Ok(())"),
    ("on_error", "on_error = |error| .."),
    ("on_lost", "on_lost = |value, loss| .."),
    ("on_unavailable", r#"on_unavailable = "run""#),
    ("condition", "condition = amount > 0"),
    ("hold_at_least", r#"hold_at_least = "1m""#),
    ("token", "token = token"),
    ("crate", "crate = my::distlock"),
];

/// Names that other libraries use for the same options, in snake case.
const FOREIGN_NAMES: [(&str, &str); 14] = [
    ("name", "key"),
    ("timeout", "wait"),
    ("wait_time", "wait"),
    ("acquire_timeout", "wait"),
    ("ttl", "lease"),
    ("expire", "lease"),
    ("lease_time", "lease"),
    ("lock_time", "lease"),
    ("at_least", "hold_at_least"),
    ("at_most", "lease"),
    ("lock_type", "mode"),
    ("kind", "mode"),
    ("when", "condition"),
    ("map_error", "on_error"),
];

/// Options of other libraries that are no option here, and what to do instead.
const FOREIGN_OPTIONS: [(&str, &str); 7] = [
    ("prefix", PREFIX),
    ("key_prefix", PREFIX),
    ("namespace", PREFIX),
    ("retries", RETRIES),
    ("retry", RETRIES),
    ("retry_count", RETRIES),
    ("retry_interval", RETRIES),
];

const PREFIX: &str =
    "a prefix for all keys is set on the client, by `Client::builder().key_prefix(..)`";

const RETRIES: &str = "there are no retries to count, because a waiter is told when the key is free; write how long \
                       it waits, e.g. `wait = \"5s\"`";

/// `name = value`.
struct Setting {
    name: Ident,
    value: Expr,
}

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(LitStr) {
            let key = input.parse::<LitStr>()?;
            let message = format!(
                "missing the name of the option; write `key = {:?}`",
                key.value()
            );
            return Err(Error::new(key.span(), message));
        }
        // Any word, since `crate` is a keyword.
        let name = input.call(Ident::parse_any)?;
        if let Some(example) = example(&name)
            && !input.peek(Token![=])
        {
            let message = format!("`{name}` needs a value, e.g. `{example}`");
            return Err(Error::new(name.span(), message));
        }
        if !input.peek(Token![=]) {
            return Err(unknown(&name));
        }
        input.parse::<Token![=]>()?;
        let value = input.parse().map_err(|error| {
            if input.is_empty() {
                // The end of the attribute has no span. The error is shown at the name.
                Error::new(name.span(), format!("the value of `{name}` is incomplete"))
            } else {
                error
            }
        })?;
        Ok(Self { name, value })
    }
}

fn example(name: &Ident) -> Option<&'static str> {
    let option = OPTIONS.iter().find(|(option, _)| name == option);
    option.map(|(_, example)| *example)
}

fn unknown(name: &Ident) -> Error {
    let written = snake_case(&name.to_string());
    let named = |names: &[(&str, &'static str)]| {
        let found = names.iter().find(|(theirs, _)| written == *theirs);
        found.map(|(_, ours)| *ours)
    };
    let answer = if let Some(answer) = named(&FOREIGN_OPTIONS) {
        answer.to_owned()
    } else if Mode::is_name(&written) {
        format!("write `mode = \"{written}\"`")
    } else {
        let names = OPTIONS.map(|(name, _)| name);
        let meant = named(&FOREIGN_NAMES).or_else(|| keyword::similar(&written, &names));
        format!(
            "{}expected one of {}",
            keyword::did_you_mean(meant),
            keyword::quoted_list(&names)
        )
    };
    Error::new(name.span(), format!("unknown option `{name}`; {answer}"))
}

/// `acquire_timeout` for `acquireTimeout`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

/// The options by name, with values that are not parsed yet.
pub(crate) struct Settings(Vec<Setting>);

impl Parse for Settings {
    /// Refuses unknown options and options that are set twice. All of them are reported, each at its place.
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let settings = Punctuated::<Setting, Token![,]>::parse_terminated(input)?;
        let mut known: Vec<Setting> = Vec::new();
        let mut errors = Errors::default();
        for setting in settings {
            let name = &setting.name;
            if example(name).is_none() {
                errors.push(unknown(name));
            } else if known.iter().any(|earlier| earlier.name == *name) {
                errors.push(Error::new(name.span(), format!("`{name}` is set twice")));
            } else {
                known.push(setting);
            }
        }
        errors.finish_with(Self(known))
    }
}

impl Settings {
    /// Takes the value of an option, if it is set.
    pub(crate) fn take(&mut self, name: &str) -> Option<Expr> {
        let at = self.position(name)?;
        Some(ungroup(self.0.remove(at).value))
    }

    /// The name of an option as the user wrote it, with its span.
    pub(crate) fn name(&self, name: &str) -> Option<Ident> {
        let at = self.position(name)?;
        Some(self.0[at].name.clone())
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|setting| setting.name == name)
    }
}

/// Removes the groups without delimiters that `macro_rules!` puts around captured expressions.
pub(crate) fn ungroup(value: Expr) -> Expr {
    match value {
        Expr::Group(group) => ungroup(*group.expr),
        other => other,
    }
}
