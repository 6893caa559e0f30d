//! URLs of clients.

use crate::backend::redis::connection::Address;
use crate::backend::redis::connection::url::{Login, Target as Servers, Tls, Url};
use crate::config::Settings;

/// A URL that is accepted names servers that can be connected to, and says the same when it is written anew. The password
/// decides nothing but the password.
pub fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let masked = Url::parse(&with_other_password(text));
    match (Url::parse(text), masked) {
        (Ok(url), Ok(masked)) => {
            is_sound(&url);
            let again = written_anew(&url);
            match Url::parse(&again) {
                Ok(read) => assert_eq!(read, url, "{again}"),
                Err(error) => panic!("{again}: {error}"),
            }
            let decided = |url: Url| (url.target, url.tls, url.settings);
            assert_eq!(decided(masked), decided(url), "{text}");
        }
        (Err(error), Err(masked)) => {
            assert_eq!(error.to_string(), masked.to_string(), "{text}");
        }
        (url, masked) => panic!("{text}: {url:?}, with another password {masked:?}"),
    }
}

/// The same text with `x` for every letter and digit of the user and the password before the hosts. Digits of escapes stay.
fn with_other_password(text: &str) -> String {
    let Some((before, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let Some((login, after)) = rest.rsplit_once('@') else {
        return text.to_owned();
    };
    // An escape keeps its two digits, so that it stays one.
    let mut escape = 0;
    let mask = |c: char| {
        escape = if c == '%' {
            2
        } else {
            i32::max(escape - 1, -1)
        };
        let is_escape = c == '%' || escape >= 0;
        if c.is_ascii_alphanumeric() && !is_escape {
            'x'
        } else {
            c
        }
    };
    let login: String = login.chars().map(mask).collect();
    format!("{before}://{login}@{after}")
}

fn is_sound(url: &Url) {
    let host = |address: &Address| {
        let Address::Tcp { host, port } = address else {
            panic!("a path among the hosts: {address}");
        };
        assert!(!host.is_empty() && *port != 0, "{address}");
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || "@,/?#%".contains(c);
        assert!(!host.contains(is_odd), "{address}");
    };
    let (addresses, db) = match &url.target {
        Servers::Server { address, db } => match address {
            Address::Tcp { .. } => (std::slice::from_ref(address), *db),
            Address::Unix(path) => {
                assert!(path.is_absolute() && url.tls == Tls::Off, "{path:?}");
                return;
            }
        },
        Servers::Cluster { seeds, db } => (seeds.as_slice(), *db),
        Servers::Sentinel {
            sentinels,
            service,
            db,
            ..
        } => {
            assert!(!service.is_empty());
            (sentinels.as_slice(), *db)
        }
    };
    assert!(!addresses.is_empty() && i32::try_from(db).is_ok());
    addresses.iter().for_each(host);
}

/// The words of a query for the user and the password. A user alone has its password elsewhere.
fn login_at_sentinels(login: Option<&Login>) -> String {
    let word = |name, text: Option<&str>| {
        let word = text.map(|text| format!("&{name}={}", encoded(text)));
        word.unwrap_or_default()
    };
    let password = match login {
        Some(Login::Full(credentials)) => Some(credentials.password()),
        _ => None,
    };
    word("sentinel_user", login.and_then(Login::user)) + &word("sentinel_password", password)
}

/// A URL that says the same, with everything encoded that can be.
fn written_anew(url: &Url) -> String {
    let scheme = if url.tls == Tls::Off {
        "redis"
    } else {
        "rediss"
    };
    let user = login_anew(url);
    let hosts = url.target.to_string();
    let settings = settings_anew(&url.settings);
    let mut is_insecure = url.tls == Tls::Insecure;
    let text = match &url.target {
        Servers::Server {
            address: Address::Unix(path),
            db,
        } => {
            let path: Vec<_> = path.to_str().unwrap_or_default().split('/').collect();
            let path: Vec<_> = path.into_iter().map(encoded).collect();
            format!("unix://{user}{}?db={db}{settings}", path.join("/"))
        }
        Servers::Server { db, .. } => format!("{scheme}://{user}{hosts}/{db}?{settings}"),
        Servers::Cluster { db, .. } => {
            format!("{scheme}+cluster://{user}{hosts}/{db}?{settings}")
        }
        Servers::Sentinel {
            service,
            db,
            login,
            tls,
            ..
        } => {
            is_insecure |= *tls == Tls::Insecure;
            let service = encoded(service);
            let tls = *tls != Tls::Off;
            let login = login_at_sentinels(login.as_ref());
            format!(
                "{scheme}+sentinel://{user}{hosts}/{service}/{db}?sentinel_tls={tls}{login}{settings}"
            )
        }
    };
    if is_insecure {
        format!("{text}#insecure")
    } else {
        text
    }
}

/// The user and the password, as they stand before the hosts.
fn login_anew(url: &Url) -> String {
    match &url.login {
        Some(Login::User(user)) => format!("{}@", encoded(user)),
        Some(Login::Full(credentials)) => {
            let user = credentials.user().unwrap_or_default();
            format!("{}:{}@", encoded(user), encoded(credentials.password()))
        }
        None => String::new(),
    }
}

/// The settings as words of a query, each after a `&`.
fn settings_anew(settings: &Settings) -> String {
    let words = Settings::words().iter().filter_map(|row| {
        let text = (row.text)(settings)?;
        Some(format!("&{}={}", row.word, encoded(&text)))
    });
    words.collect()
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
