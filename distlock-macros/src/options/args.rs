//! The parsed options of one attribute, and which of them exclude each other.

use std::time::Duration;

use humantime::format_duration;
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, ExprLit, Ident, Lit, Path, Result};

use super::duration::DurationValue;
use super::keys::Keys;
use super::keyword::{self, OnUnavailable};
use super::mode::Mode;
use super::setting::Settings;
use crate::errors::Errors;

/// The options of one attribute.
pub(crate) struct Args {
    pub(crate) keys: Keys,
    pub(crate) wait: Option<DurationValue>,
    pub(crate) lease: Option<DurationValue>,
    pub(crate) max_hold: Option<DurationValue>,
    pub(crate) max_waiters: Option<Expr>,
    pub(crate) mode: Mode,
    pub(crate) client: Option<Expr>,
    pub(crate) on_busy: Option<Expr>,
    pub(crate) on_error: Option<Expr>,
    pub(crate) on_lost: Option<Expr>,
    pub(crate) on_unavailable: OnUnavailable,
    pub(crate) condition: Option<Expr>,
    pub(crate) hold_at_least: Option<DurationValue>,
    pub(crate) token: Option<Ident>,
    pub(crate) krate: Option<Path>,
}

impl Parse for Args {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        input.parse::<Settings>().and_then(Self::from_settings)
    }
}

impl Args {
    fn from_settings(mut settings: Settings) -> Result<Self> {
        let mut errors = Errors::default();
        // Before the option is taken out.
        let keys_name = settings.name("keys");
        let keys = errors.handle(keys(&mut settings));
        let wait = errors.handle(duration(&mut settings, "wait"));
        let lease = errors.handle(lease(&mut settings));
        let max_hold = errors.handle(at_least_a_millisecond(&mut settings, "max_hold"));
        let max_waiters = settings.take("max_waiters").map(number);
        let max_waiters = errors.handle(max_waiters.transpose());
        let mode = errors.handle(settings.take("mode").as_ref().map(Mode::parse).transpose());
        let on_unavailable = settings.take("on_unavailable");
        let on_unavailable = on_unavailable.as_ref().map(OnUnavailable::parse);
        let on_unavailable = errors.handle(on_unavailable.transpose());
        let hold_at_least = errors.handle(hold_at_least(&mut settings));
        let token = errors.handle(settings.take("token").map(token_name).transpose());
        let krate = errors.handle(settings.take("crate").map(crate_path).transpose());
        let args = Self {
            keys: errors.finish_with(keys)?.ok_or_else(missing_key)?,
            wait: wait.flatten(),
            lease: lease.flatten(),
            max_hold: max_hold.flatten(),
            max_waiters: max_waiters.flatten(),
            mode: mode.flatten().unwrap_or_default(),
            client: settings.take("client"),
            on_busy: settings.take("on_busy"),
            on_error: settings.take("on_error"),
            on_lost: settings.take("on_lost"),
            on_unavailable: on_unavailable.flatten().unwrap_or_default(),
            condition: settings.take("condition"),
            hold_at_least: hold_at_least.flatten(),
            token: token.flatten(),
            krate: krate.flatten(),
        };
        args.check_combinations(keys_name)?;
        Ok(args)
    }

    /// Whether an option uses the variable.
    pub(crate) fn mentions(&self, variable: &Ident) -> bool {
        let mut expressions = self.expressions();
        expressions.any(|expr| contains_variable(expr.to_token_stream(), variable))
    }

    fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let durations = [&self.wait, &self.lease, &self.max_hold, &self.hold_at_least];
        let durations = durations
            .into_iter()
            .flatten()
            .filter_map(DurationValue::expr);
        let others = [
            &self.max_waiters,
            &self.client,
            &self.on_busy,
            &self.on_error,
            &self.on_lost,
            &self.condition,
        ];
        let keys = self.keys.expressions().into_iter();
        keys.chain(durations).chain(others.into_iter().flatten())
    }

    /// Refuses combinations of options that exclude each other.
    fn check_combinations(&self, keys_name: Option<Ident>) -> Result<()> {
        if let Some(keys) = keys_name.filter(|_| self.mode == Mode::Fenced) {
            let message =
                "`mode = \"fenced\"` takes one `key`, not `keys`, because there is one token";
            return Err(Error::new(keys.span(), message));
        }
        if let Some(token) = &self.token {
            self.check_token(token)?;
        }
        self.hold_at_least
            .as_ref()
            .map_or(Ok(()), |least| self.check_hold_at_least(least))
    }

    fn check_token(&self, token: &Ident) -> Result<()> {
        let message = if self.mode != Mode::Fenced {
            "`token` needs `mode = \"fenced\"`"
        } else if self.condition.is_some() {
            "`token` cannot be combined with `condition`: a body that runs without the lock has no token"
        } else if self.on_unavailable == OnUnavailable::Run {
            "`token` cannot be combined with `on_unavailable = \"run\"`: a body that runs without the lock has no token"
        } else {
            return Ok(());
        };
        Err(Error::new(token.span(), message))
    }

    fn check_hold_at_least(&self, least: &DurationValue) -> Result<()> {
        // What ends the hold earlier, if both are literals.
        let ends = [("lease", &self.lease), ("max_hold", &self.max_hold)];
        let ends = ends.into_iter().filter_map(|(name, end)| {
            let end = end.as_ref().and_then(DurationValue::literal)?;
            Some((end, name))
        });
        let message = match (least.literal(), ends.min()) {
            _ if !self.mode.supports_hold_at_least() => format!(
                "`hold_at_least` cannot be combined with `mode = \"{}\"`; modes that support it: {}",
                self.mode.name(),
                keyword::quoted_list(&Mode::names_supporting_hold_at_least())
            ),
            (Some(least), Some((end, name))) if least > end => format!(
                "`hold_at_least` ({}) is longer than `{name}` ({})",
                format_duration(least),
                format_duration(end)
            ),
            _ => return Ok(()),
        };
        Err(Error::new(least.span(), message))
    }
}

/// Whether tokens use a variable: as an identifier, or inside a string literal as `format!` does (`{name}`, and `{other:name$}`). There,
/// the name of a raw identifier has no `r#`.
pub(crate) fn contains_variable(tokens: TokenStream, variable: &Ident) -> bool {
    tokens.into_iter().any(|tree| match tree {
        TokenTree::Group(group) => contains_variable(group.stream(), variable),
        TokenTree::Ident(name) => name == *variable,
        TokenTree::Literal(text) => {
            let (text, name) = (text.to_string(), variable.unraw());
            text.contains(&format!("{{{name}")) || text.contains(&format!("{name}$"))
        }
        TokenTree::Punct(_) => false,
    })
}

fn keys(settings: &mut Settings) -> Result<Keys> {
    let keys_name = settings.name("keys");
    match (settings.take("key"), settings.take("keys"), keys_name) {
        (Some(_), _, Some(keys)) => Err(Error::new(
            keys.span(),
            "set either `key` or `keys`, not both",
        )),
        (Some(key), ..) => Keys::from_key(key),
        (None, Some(keys), _) => Keys::from_keys(keys),
        (None, None, _) => Err(missing_key()),
    }
}

fn missing_key() -> Error {
    Error::new(
        Span::call_site(),
        "missing `key`: name the key to lock, e.g. `#[distributed_lock(key = \"pay:<id>\")]`",
    )
}

fn duration(settings: &mut Settings, name: &str) -> Result<Option<DurationValue>> {
    let value = settings.take(name);
    value
        .map(|value| DurationValue::parse(name, value))
        .transpose()
}

fn at_least_a_millisecond(settings: &mut Settings, name: &str) -> Result<Option<DurationValue>> {
    let time = duration(settings, name)?;
    time.map(|time| time.at_least_a_millisecond(name))
        .transpose()
}

fn lease(settings: &mut Settings) -> Result<Option<DurationValue>> {
    let instead = "without it the watchdog renews the lock until the body ends";
    let lease = at_least_a_millisecond(settings, "lease")?;
    lease
        .map(|lease| lease.limited("lease", instead))
        .transpose()
}

/// A number, or an expression of type `u32`.
fn number(value: Expr) -> Result<Expr> {
    match &value {
        Expr::Lit(ExprLit { lit, .. }) if !matches!(lit, Lit::Int(_)) => Err(Error::new_spanned(
            value,
            "expected a number, e.g. `max_waiters = 100`",
        )),
        _ => Ok(value),
    }
}

fn token_name(value: Expr) -> Result<Ident> {
    match &value {
        Expr::Path(path) => path.path.get_ident().cloned(),
        _ => None,
    }
    .filter(|name| name != "self")
    .ok_or_else(|| {
        Error::new_spanned(
            value,
            "expected an identifier for the token, e.g. `token = token`",
        )
    })
}

fn hold_at_least(settings: &mut Settings) -> Result<Option<DurationValue>> {
    let least = duration(settings, "hold_at_least")?;
    // Zero is the default: the key is free when the hold is released.
    let least = least.filter(|least| least.literal() != Some(Duration::ZERO));
    let checked = |least: DurationValue| {
        let least = least.at_least_a_millisecond("hold_at_least")?;
        least.limited("hold_at_least", "write a time, e.g. \"1m\"")
    };
    least.map(checked).transpose()
}

fn crate_path(value: Expr) -> Result<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path),
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => text
            .parse_with(Path::parse_mod_style)
            .map_err(|_| expected_path(&text)),
        other => Err(expected_path(&other)),
    }
}

fn expected_path(written: impl ToTokens) -> Error {
    Error::new_spanned(written, "expected a path, e.g. `crate = my::distlock`")
}
