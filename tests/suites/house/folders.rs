//! Files of a folder: no circles, and the order of those on the way of a call.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::arrows::Crate;
use super::{ORDERS, PARENTS, SUM_TYPES};

pub(super) fn folder_of(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join(name).join("src")
}

#[test]
fn files_of_a_folder_do_not_name_each_other_in_a_circle() {
    let crates = [
        "distlock",
        "distlock-tower",
        "distlock-macros",
        "distlock/cli",
    ];
    let circles: Vec<_> = crates
        .iter()
        .flat_map(|name| {
            let circles = Crate::read(&folder_of(name)).circles(SUM_TYPES, PARENTS);
            circles
                .into_iter()
                .map(move |circle| format!("{name}, {circle}"))
        })
        .collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn files_on_the_way_of_an_acquisition_and_a_release_name_only_those_behind_them() {
    let distlock = Crate::read(&folder_of("distlock"));
    let orders = ORDERS.iter();
    let wrong: Vec<_> = orders
        .flat_map(|(folder, order)| distlock.out_of_order(folder, order))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn arrow_back_and_a_file_that_is_in_no_list_are_found() {
    let files = [
        ("lib.rs", "mod room;"),
        ("room/mod.rs", "mod one;\nmod two;\nuse self::one::One;"),
        (
            "room/one.rs",
            "use super::two::Two;\npub(crate) struct One;",
        ),
        ("room/two.rs", "pub(crate) struct Two;"),
    ];
    let files = files.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
    let room = Crate::of(BTreeMap::from(files));
    assert!(room.out_of_order("room", &["mod", "one", "two"]).is_empty());
    let back = "in room: one -> two (room/one.rs:1)";
    assert_eq!(room.out_of_order("room", &["mod", "two", "one"]), [back]);
    assert_eq!(room.out_of_order("room", &["mod", "one"]), [back]);
}

#[test]
fn folders_own_file_is_on_a_circle_unless_it_is_listed() {
    let files = [
        ("lib.rs", "mod room;"),
        (
            "room/mod.rs",
            "mod one;\nuse self::one::One;\npub(crate) struct Room;",
        ),
        ("room/one.rs", "use super::Room;\npub(crate) struct One;"),
    ];
    let files = files.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
    let room = Crate::of(BTreeMap::from(files));
    assert_eq!(room.circles(&[], &[]).len(), 1);
    assert!(room.circles(&[], &["room"]).is_empty());
}

#[test]
fn circle_of_files_is_found_by_whatever_way_they_name_each_other() {
    let circles = |one: &str, two: &str| {
        let files = [
            ("lib.rs", "mod room;"),
            (
                "room/mod.rs",
                "mod one;\nmod two;\nmod three;\npub(crate) use self::two::Two;",
            ),
            ("room/one.rs", one),
            ("room/two.rs", two),
            ("room/three.rs", "use super::one::One;"),
        ];
        let files = files.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        let files = Crate::of(BTreeMap::from(files));
        files.circles(&[], &[]).join("\n")
    };
    let names_one = "use super::one::One;\npub(crate) struct Two;";
    assert_eq!(circles("", names_one), "");
    assert_eq!(
        circles("use super::two::Two;", names_one),
        "in room: one -> two (room/one.rs:1), two -> one (room/two.rs:1)"
    );
    for back in [
        "use super::Two;",
        "use super::{Two as Other};",
        "use crate::room::{Two, three::Three};",
        "fn f() {\n    super::two::run();\n}",
        "pub(crate) use super::two::Two;\nfn f(two: Two) {}",
    ] {
        assert!(!circles(back, names_one).is_empty(), "{back}");
    }
    for none in [
        "// use super::Two;",
        "const TEXT: &str = \"super::two::Two\";",
        "#[cfg(test)]\nmod tests {\n    use super::super::two::Two;\n}",
    ] {
        assert_eq!(circles(none, names_one), "", "{none}");
    }
}
