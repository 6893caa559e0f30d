//! User and password of a server that asks for them.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// What a server asks of those who connect.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl Login {
    pub(super) fn new(user: &str, password: &str) -> Self {
        let [user, password] = [user, password].map(str::to_owned);
        Self { user, password }
    }

    /// `user:password@`, as it stands in a URL.
    pub(super) fn in_url(&self) -> String {
        let [user, password] = self.encoded();
        format!("{user}:{password}@")
    }

    /// User and password as a URL may contain them.
    pub(super) fn encoded(&self) -> [String; 2] {
        [&self.user, &self.password]
            .map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string())
    }

    /// The users of the server, each as the words of a `user` setting: this one has every right, and nobody else has any.
    pub(super) fn users(&self) -> Vec<Vec<String>> {
        let password = format!(">{}", self.password);
        let user = [&self.user, "on", &password, "~*", "&*", "+@all"];
        let mut users = vec![user.map(str::to_owned).to_vec()];
        if self.user != "default" {
            users.push(["default", "off"].map(str::to_owned).to_vec());
        }
        users
    }
}
