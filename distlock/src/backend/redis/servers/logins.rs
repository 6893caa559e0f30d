//! Which credentials count: those of the builder, of a file, or of the URL.

use std::error::Error as StdError;
use std::fs;
use std::future::ready;
use std::path::{Path, PathBuf};

use crate::backend::redis::connection::url::Login;
use crate::config::Config;
use crate::config::credentials::{Credentials, CredentialsSource};
use crate::config::source::Source;
use crate::error::Error;

pub(super) fn of_servers(
    in_url: Option<Login>,
    config: &Config,
) -> Result<Option<CredentialsSource>, Error> {
    match &config.credentials {
        Some(built) => Ok(Some(built.clone())),
        None => source(
            in_url,
            config.password_file.as_ref(),
            "a user without password; write `user:password@`, set `password_file`, or leave both out",
        ),
    }
}

/// The credentials for the Sentinels, which have separate users.
pub(super) fn of_sentinels(
    in_url: Option<Login>,
    config: &Config,
) -> Result<Option<CredentialsSource>, Error> {
    source(
        in_url,
        config.sentinel_password_file.as_ref(),
        "`sentinel_user` without `sentinel_password`; write both, set `sentinel_password_file`, or leave both out",
    )
}

fn source(
    in_url: Option<Login>,
    file: Option<&PathBuf>,
    without_password: &str,
) -> Result<Option<CredentialsSource>, Error> {
    match (in_url, file) {
        (in_url, Some(path)) => {
            let user = in_url.as_ref().and_then(Login::user);
            Ok(Some(of_file(user.map(str::to_owned), path.clone())))
        }
        (Some(Login::User(_)), None) => Err(Error::InvalidUrl {
            reason: without_password.to_owned(),
        }),
        (Some(Login::Full(credentials)), None) => Ok(Some(Source::Fixed(credentials))),
        (None, None) => Ok(None),
    }
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
