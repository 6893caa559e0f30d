//! The options as written: each named once, each value of the right shape.

use std::time::Duration;

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprLit, ExprRange, Lit, LitStr, Path, RangeLimits, Result, Token};

use crate::duration;
use crate::template::Template;

/// All options of one attribute.
pub(crate) struct Args {
    pub(crate) keys: Keys,
    pub(crate) wait: Option<Time>,
    pub(crate) lease: Option<Time>,
    pub(crate) client: Option<Expr>,
    pub(crate) on_busy: Option<Expr>,
    pub(crate) on_error: Option<Expr>,
    pub(crate) krate: Option<Path>,
}

/// What is locked.
pub(crate) enum Keys {
    /// `key = ..`
    One(Key),
    /// `keys = [..]`
    List(Vec<Element>),
    /// `keys = ..`, an expression that gives them all.
    Given(Expr),
}

/// One key.
pub(crate) enum Key {
    Template(Template),
    /// An expression that is the whole key.
    Whole(Expr),
}

/// What stands in a list of keys.
pub(crate) enum Element {
    Key(Key),
    /// `..expression`: as many as that has.
    Spread(Expr),
}

impl Keys {
    pub(crate) fn templates(&self) -> Vec<&Template> {
        let keys: Vec<&Key> = match self {
            Self::One(key) => vec![key],
            Self::List(elements) => elements.iter().filter_map(Element::key).collect(),
            Self::Given(_) => Vec::new(),
        };
        keys.into_iter().filter_map(Key::template).collect()
    }
}

impl Key {
    fn template(&self) -> Option<&Template> {
        match self {
            Self::Template(template) => Some(template),
            Self::Whole(_) => None,
        }
    }

    fn of(value: Expr) -> Result<Self> {
        match value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(template),
                ..
            }) => Template::parse(template).map(Self::Template),
            whole => Ok(Self::Whole(whole)),
        }
    }
}

impl Element {
    fn key(&self) -> Option<&Key> {
        match self {
            Self::Key(key) => Some(key),
            Self::Spread(_) => None,
        }
    }

    /// A spread is what Rust reads as a range without a start.
    fn of(value: Expr) -> Result<Self> {
        match value {
            Expr::Range(ExprRange {
                start: None,
                limits: RangeLimits::HalfOpen(_),
                end: Some(all),
                ..
            }) => Ok(Self::Spread(*all)),
            Expr::Range(range) => Err(Error::new_spanned(
                range,
                "a range is no key; to add all keys of an iterator write `..iterator`",
            )),
            key => Key::of(ungroup(key)).map(Self::Key),
        }
    }
}

/// A duration.
pub(crate) enum Time {
    Fixed(Duration, Span),
    /// An expression of type `Duration`.
    Given(Expr),
}

/// Every option, with an example for messages.
const OPTIONS: [(&str, &str); 8] = [
    ("key", r#"key = "pay:<id>""#),
    ("keys", r#"keys = ["order:<id>", "stock:<item>"]"#),
    ("wait", r#"wait = "5s""#),
    ("lease", r#"lease = "20s""#),
    ("client", "client = self.locks"),
    ("on_busy", "on_busy = |_| Ok(())"),
    ("on_error", "on_error = |error| .."),
    ("crate", "crate = my::distlock"),
];

impl Parse for Args {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let settings = Punctuated::<Setting, Token![,]>::parse_terminated(input)?;
        Settings::sort(settings)?.read()
    }
}

/// `name = value`.
struct Setting {
    name: Ident,
    value: Expr,
}

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(LitStr) {
            let key = input.parse::<LitStr>()?;
            let says = format!("name the option: `key = {:?}`", key.value());
            return Err(Error::new(key.span(), says));
        }
        let name = input.call(Ident::parse_any)?;
        if let Some(example) = example(&name)
            && !input.peek(Token![=])
        {
            let says = format!("`{name}` needs a value, e.g. `{example}`");
            return Err(Error::new(name.span(), says));
        }
        if !input.peek(Token![=]) {
            return Err(unknown(&name));
        }
        input.parse::<Token![=]>()?;
        let value = input.parse()?;
        Ok(Self { name, value })
    }
}

fn example(name: &Ident) -> Option<&'static str> {
    let option = OPTIONS.iter().find(|(option, _)| name == option);
    option.map(|(_, example)| *example)
}

fn unknown(name: &Ident) -> Error {
    let names: Vec<_> = OPTIONS
        .iter()
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    let says = format!(
        "unknown option `{name}`; expected one of {}",
        names.join(", ")
    );
    Error::new(name.span(), says)
}

/// The options by name, their values unread.
struct Settings(Vec<Setting>);

impl Settings {
    /// Refuses what is unknown or given twice; reports all of it, as each has a place of its own.
    fn sort(settings: Punctuated<Setting, Token![,]>) -> Result<Self> {
        let mut known: Vec<Setting> = Vec::new();
        let mut wrong = Wrong::default();
        for setting in settings {
            let name = &setting.name;
            if example(name).is_none() {
                wrong.add(unknown(name));
            } else if known.iter().any(|earlier| earlier.name == *name) {
                wrong.add(Error::new(name.span(), format!("`{name}` is set twice")));
            } else {
                known.push(setting);
            }
        }
        wrong.none_or(Self(known))
    }

    fn read(mut self) -> Result<Args> {
        let mut wrong = Wrong::default();
        let keys = wrong.check(self.keys());
        let wait = wrong.check(self.time("wait"));
        let lease = wrong.check(self.time("lease").and_then(at_least_a_millisecond));
        let krate = wrong.check(self.take("crate").map(path).transpose());
        wrong.none_or(())?;
        Ok(Args {
            keys: keys.expect("no error means keys"),
            wait: wait.flatten(),
            lease: lease.flatten(),
            client: self.take("client"),
            on_busy: self.take("on_busy"),
            on_error: self.take("on_error"),
            krate: krate.flatten(),
        })
    }

    fn take(&mut self, name: &str) -> Option<Expr> {
        let at = self.0.iter().position(|setting| setting.name == name)?;
        Some(ungroup(self.0.remove(at).value))
    }

    fn keys(&mut self) -> Result<Keys> {
        let both = self.0.iter().find(|setting| setting.name == "keys");
        let both = both.map(|keys| keys.name.span());
        match (self.take("key"), self.take("keys")) {
            (Some(_), Some(_)) => Err(Error::new(
                both.unwrap_or_else(Span::call_site),
                "give `key` or `keys`, not both",
            )),
            (Some(key), None) => Key::of(key).map(Keys::One),
            (None, Some(keys)) => several(keys),
            (None, None) => Err(Error::new(
                Span::call_site(),
                "missing `key`: say what to lock, e.g. `#[distributed_lock(key = \"pay:<id>\")]`",
            )),
        }
    }

    fn time(&mut self, name: &str) -> Result<Option<Time>> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let Expr::Lit(ExprLit { lit, .. }) = &value else {
            return Ok(Some(Time::Given(value)));
        };
        let fixed = match lit {
            Lit::Str(text) => duration::parse(&text.value()),
            Lit::Int(_) | Lit::Float(_) => bare_number(name, &lit_text(lit)),
            _ => return Ok(Some(Time::Given(value))),
        };
        match fixed {
            Ok(fixed) => Ok(Some(Time::Fixed(fixed, lit.span()))),
            Err(says) => Err(Error::new(lit.span(), says)),
        }
    }
}

fn several(keys: Expr) -> Result<Keys> {
    match keys {
        Expr::Array(list) if list.elems.is_empty() => Err(Error::new_spanned(
            list,
            "no keys: say what to lock, e.g. `keys = [\"order:<id>\", \"stock:<item>\"]`",
        )),
        Expr::Array(list) => {
            let mut wrong = Wrong::default();
            let elements = list.elems.into_iter();
            let elements: Vec<_> = elements
                .filter_map(|element| wrong.check(Element::of(element)))
                .collect();
            wrong.none_or(Keys::List(elements))
        }
        Expr::Lit(ExprLit {
            lit: Lit::Str(key), ..
        }) => {
            let says = format!("`keys` is a list; write `key = {:?}`", key.value());
            Err(Error::new(key.span(), says))
        }
        given => Ok(Keys::Given(given)),
    }
}

/// Only `0` needs no unit, and a unit needs quotes.
fn bare_number(name: &str, number: &str) -> std::result::Result<Duration, String> {
    match duration::parse(number) {
        Ok(Duration::ZERO) if number == "0" => Ok(Duration::ZERO),
        Ok(_) => Err(format!(
            "`{name} = {number}` needs quotes; write \"{number}\""
        )),
        Err(_) => Err(format!(
            "`{name} = {number}` has no unit; write \"{number}s\""
        )),
    }
}

fn lit_text(lit: &Lit) -> String {
    quote::ToTokens::to_token_stream(lit).to_string()
}

fn at_least_a_millisecond(lease: Option<Time>) -> Result<Option<Time>> {
    match lease {
        // Redis counts leases in milliseconds, and one of none is over before it begins.
        Some(Time::Fixed(fixed, span)) if fixed < Duration::from_millis(1) => {
            Err(Error::new(span, "`lease` must be at least 1ms"))
        }
        other => Ok(other),
    }
}

fn path(value: Expr) -> Result<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path),
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => text
            .parse_with(Path::parse_mod_style)
            .map_err(|_| no_path(text.span())),
        other => Err(no_path(other.span())),
    }
}

fn no_path(span: Span) -> Error {
    Error::new(span, "expected a path, e.g. `crate = my::distlock`")
}

/// A `macro_rules!` passes what it captured inside an invisible group.
fn ungroup(value: Expr) -> Expr {
    match value {
        Expr::Group(group) => ungroup(*group.expr),
        other => other,
    }
}

/// Errors so far.
#[derive(Default)]
struct Wrong(Option<Error>);

impl Wrong {
    fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn check<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    fn none_or<T>(self, value: T) -> Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}
