//! Which credentials count: those of the builder, of a file, or of the URL.

use std::error::Error as StdError;
use std::fs;
use std::future::ready;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::config::credentials::{Credentials, CredentialsSource};
use crate::config::source::Source;
use crate::error::Error;

/// The credentials for the servers.
pub(super) fn credentials(
    in_url: Option<Credentials>,
    user: Option<String>,
    config: &Config,
) -> Result<Option<CredentialsSource>, Error> {
    if let Some(built) = &config.credentials {
        return Ok(Some(built.clone()));
    }
    if let Some(path) = &config.password_file {
        let user = user.or_else(|| in_url?.user().map(str::to_owned));
        return Ok(Some(of_file(user, path.clone())));
    }
    if user.is_some() {
        return Err(Error::InvalidUrl {
            reason: "a user without password; write `user:password@`, set `password_file`, or leave both out".to_owned(),
        });
    }
    Ok(in_url.map(Source::Fixed))
}

/// The credentials for the Sentinels, which have separate users.
pub(super) fn of_sentinels(
    in_url: Option<Credentials>,
    user: Option<String>,
    config: &Config,
) -> Result<Option<CredentialsSource>, Error> {
    if let Some(path) = &config.sentinel_password_file {
        let user = user.or_else(|| in_url?.user().map(str::to_owned));
        return Ok(Some(of_file(user, path.clone())));
    }
    if user.is_some() {
        return Err(Error::InvalidUrl {
            reason: "`sentinel_user` without `sentinel_password`; write both, set `sentinel_password_file`, or leave both out"
                .to_owned(),
        });
    }
    Ok(in_url.map(Source::Fixed))
}

/// The password that the file has at each connection.
fn of_file(user: Option<String>, path: PathBuf) -> CredentialsSource {
    let ask = move || ready(password(&path));
    let with_user = move |password: String| match &user {
        Some(user) => Credentials::new(user, password),
        None => Credentials::of_default_user(password),
    };
    Source::asked(ask, with_user)
}

fn password(path: &Path) -> Result<String, Box<dyn StdError + Send + Sync>> {
    // Read here, and not by tokio's pool of blocking threads, which the program may have used up. The file is small.
    let read = fs::read_to_string(path);
    let read = read.map_err(|error| format!("the password in {}: {error}", path.display()))?;
    Ok(read.trim_end().to_owned())
}
