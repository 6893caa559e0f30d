//! The options as written: each value of the right shape, and all of them fit to stand together.

use std::time::Duration;

use humantime::format_duration;
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, ExprLit, Ident, Lit, Path, Result};

use crate::duration::Time;
use crate::keys::Keys;
use crate::mode::Mode;
use crate::setting::Settings;
use crate::word::{self, OnUnavailable};
use crate::wrong::Wrong;

/// All options of one attribute.
pub(crate) struct Args {
    pub(crate) keys: Keys,
    pub(crate) wait: Option<Time>,
    pub(crate) lease: Option<Time>,
    pub(crate) mode: Mode,
    pub(crate) client: Option<Expr>,
    pub(crate) on_busy: Option<Expr>,
    pub(crate) on_error: Option<Expr>,
    pub(crate) on_unavailable: OnUnavailable,
    pub(crate) condition: Option<Expr>,
    pub(crate) hold_at_least: Option<Time>,
    pub(crate) token: Option<Ident>,
    pub(crate) krate: Option<Path>,
}

impl Parse for Args {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        input.parse::<Settings>().and_then(Self::read)
    }
}

impl Args {
    fn read(mut settings: Settings) -> Result<Self> {
        let mut wrong = Wrong::default();
        let several = settings.name("keys");
        let keys = wrong.check(keys(&mut settings));
        let wait = wrong.check(time(&mut settings, "wait"));
        let lease = wrong.check(lease(&mut settings));
        let mode = wrong.check(settings.take("mode").as_ref().map(Mode::read).transpose());
        let on_unavailable = settings.take("on_unavailable");
        let on_unavailable = on_unavailable.as_ref().map(OnUnavailable::read);
        let on_unavailable = wrong.check(on_unavailable.transpose());
        let hold_at_least = wrong.check(hold_at_least(&mut settings));
        let token = wrong.check(settings.take("token").map(name).transpose());
        let krate = wrong.check(settings.take("crate").map(path).transpose());
        let args = Self {
            keys: wrong.none_or(keys)?.ok_or_else(no_key)?,
            wait: wait.flatten(),
            lease: lease.flatten(),
            mode: mode.flatten().unwrap_or_default(),
            client: settings.take("client"),
            on_busy: settings.take("on_busy"),
            on_error: settings.take("on_error"),
            on_unavailable: on_unavailable.flatten().unwrap_or_default(),
            condition: settings.take("condition"),
            hold_at_least: hold_at_least.flatten(),
            token: token.flatten(),
            krate: krate.flatten(),
        };
        args.fit(several)?;
        Ok(args)
    }

    /// Whether an option names the variable. A text may, too, if it is what `format!` prints.
    pub(crate) fn names(&self, variable: &Ident) -> bool {
        let mut expressions = self.expressions();
        expressions.any(|expr| stands_in(expr.to_token_stream(), &variable.to_string()))
    }

    fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let times = [&self.wait, &self.lease, &self.hold_at_least];
        let times = times.into_iter().flatten().filter_map(Time::given);
        let others = [&self.client, &self.on_busy, &self.on_error, &self.condition];
        let keys = self.keys.expressions().into_iter();
        keys.chain(times).chain(others.into_iter().flatten())
    }

    /// Refuses what is right by itself and wrong together.
    fn fit(&self, several: Option<Ident>) -> Result<()> {
        if let Some(keys) = several.filter(|_| self.mode == Mode::Fenced) {
            let says = "`mode = \"fenced\"` takes one `key`, not `keys`: there is one token";
            return Err(Error::new(keys.span(), says));
        }
        if let Some(token) = &self.token {
            self.fit_token(token)?;
        }
        self.hold_at_least
            .as_ref()
            .map_or(Ok(()), |least| self.fit_hold_at_least(least))
    }

    fn fit_token(&self, token: &Ident) -> Result<()> {
        let says = if self.mode != Mode::Fenced {
            "`token` needs `mode = \"fenced\"`"
        } else if self.condition.is_some() {
            "`token` and `condition` exclude each other: a body that runs without the lock has no token"
        } else if self.on_unavailable == OnUnavailable::Run {
            "`token` and `on_unavailable = \"run\"` exclude each other: a body that runs without the lock has no token"
        } else {
            return Ok(());
        };
        Err(Error::new(token.span(), says))
    }

    fn fit_hold_at_least(&self, least: &Time) -> Result<()> {
        let lease = self.lease.as_ref().and_then(Time::fixed);
        let says = match (least.fixed(), lease) {
            _ if !self.mode.can_rest() => format!(
                "`hold_at_least` cannot go with `mode = \"{}\"`; it goes with {}",
                self.mode.name(),
                word::list(&Mode::that_can_rest())
            ),
            (Some(least), Some(lease)) if least > lease => format!(
                "`hold_at_least` ({}) is longer than `lease` ({})",
                format_duration(least),
                format_duration(lease)
            ),
            _ => return Ok(()),
        };
        Err(Error::new(least.span(), says))
    }
}

fn stands_in(tokens: TokenStream, variable: &str) -> bool {
    tokens.into_iter().any(|tree| match tree {
        TokenTree::Group(group) => stands_in(group.stream(), variable),
        TokenTree::Ident(name) => name == variable,
        TokenTree::Literal(text) => text.to_string().contains(&format!("{{{variable}")),
        TokenTree::Punct(_) => false,
    })
}

fn keys(settings: &mut Settings) -> Result<Keys> {
    let several = settings.name("keys");
    match (settings.take("key"), settings.take("keys"), several) {
        (Some(_), _, Some(keys)) => Err(Error::new(keys.span(), "give `key` or `keys`, not both")),
        (Some(key), ..) => Keys::one(key),
        (None, Some(keys), _) => Keys::several(keys),
        (None, None, _) => Err(no_key()),
    }
}

fn no_key() -> Error {
    Error::new(
        Span::call_site(),
        "missing `key`: say what to lock, e.g. `#[distributed_lock(key = \"pay:<id>\")]`",
    )
}

fn time(settings: &mut Settings, name: &str) -> Result<Option<Time>> {
    let value = settings.take(name);
    value.map(|value| Time::read(name, value)).transpose()
}

fn lease(settings: &mut Settings) -> Result<Option<Time>> {
    let lease = time(settings, "lease")?;
    lease
        .map(|lease| lease.at_least_a_millisecond("lease"))
        .transpose()
}

fn name(value: Expr) -> Result<Ident> {
    match &value {
        Expr::Path(path) => path.path.get_ident().cloned(),
        _ => None,
    }
    .filter(|name| name != "self")
    .ok_or_else(|| Error::new_spanned(value, "expected a name for the token, e.g. `token = token`"))
}

fn hold_at_least(settings: &mut Settings) -> Result<Option<Time>> {
    let least = time(settings, "hold_at_least")?;
    // As long as it takes: what is there without it.
    let least = least.filter(|least| least.fixed() != Some(Duration::ZERO));
    least
        .map(|least| least.at_least_a_millisecond("hold_at_least"))
        .transpose()
}

fn path(value: Expr) -> Result<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path),
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => text
            .parse_with(Path::parse_mod_style)
            .map_err(|_| no_path(&text)),
        other => Err(no_path(&other)),
    }
}

fn no_path(written: impl ToTokens) -> Error {
    Error::new_spanned(written, "expected a path, e.g. `crate = my::distlock`")
}
