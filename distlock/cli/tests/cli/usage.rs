//! Wrong command lines, and what no output may contain.

use super::*;

#[tokio::test]
async fn wrong_command_lines_exit_with_64() {
    let server = RedisServer::start().await;
    let url = server.url();
    for words in [
        &["--url", url.as_str(), "run"] as &[&str],
        &["--url", &url, "run", "job"],
        &["--url", &url, "run", "job", "--wait", "5", "--", "true"],
        &["--url", &url, "run", "job", "--kind", "odd", "--", "true"],
        &["--url", &url, "run", "", "--", "true"],
        &["--url", &url, "run", "job", "--lease", "0", "--", "true"],
        &["--url", &url, "run", "job", "--tls-ca", "x", "--", "true"],
        &[
            "--url",
            "rediss://127.0.0.1:1",
            "run",
            "job",
            "--tls-ca-file",
            "/no/such/file",
            "--",
            "true",
        ],
        &[
            "--url",
            "http://:hush@localhost",
            "run",
            "job",
            "--",
            "true",
        ],
        &["--url", "", "run", "job", "--", "true"],
        &["run", "job", "--", "true"],
        &["fly"],
        &[],
    ] {
        let output = plain_output(words.iter().copied()).await;
        assert_eq!(
            output.status.code(),
            Some(64),
            "{words:?}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "", "{words:?}");
        let said = stderr(&output);
        assert!(
            !said.is_empty() && !said.contains("hush"),
            "{words:?}: {said}"
        );
    }
}

#[tokio::test]
async fn help_and_version_exit_with_0_and_show_no_password() {
    for words in [&["--help"] as &[&str], &["--version"], &["run", "--help"]] {
        let mut command = program(PROGRAM);
        command
            .args(words)
            .env("REDIS_URL", "redis://:hush@localhost");
        let output = command.output().await.unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            stderr(&output)
        );
        assert!(!stdout(&output).is_empty() && !stdout(&output).contains("hush"));
    }
}

#[tokio::test]
async fn url_comes_from_the_environment_and_a_wrong_password_exits_with_77() {
    let server = RedisServer::builder()
        .credentials("shop", "right")
        .start()
        .await;
    let run = |url: String| async move {
        let mut command = program(PROGRAM);
        command
            .args(["run", "job", "--", "true"])
            .env("REDIS_URL", url);
        command.output().await.unwrap()
    };
    let right = run(server.url()).await;
    assert_eq!(right.status.code(), Some(0), "{}", stderr(&right));
    let wrong = run(server.url().replace("right", "hush")).await;
    assert_eq!(wrong.status.code(), Some(77), "{}", stderr(&wrong));
    assert!(!stderr(&wrong).contains("hush"), "{}", stderr(&wrong));
}

#[tokio::test]
async fn completions_and_man_pages_name_each_command_and_need_no_server() {
    let commands = ["run", "release", "ls", "who", "watch", "doctor"];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let written = plain_output(["completions", shell]).await;
        assert_eq!(written.status.code(), Some(0), "{}", stderr(&written));
        for command in commands {
            assert!(stdout(&written).contains(command), "{shell}: {command}");
        }
        assert!(stdout(&written).contains("busy-status"), "{shell}");
    }
    let page = stdout(&plain_output(["man"]).await);
    assert!(page.contains(".TH distlock 1"), "{page}");
    for command in commands {
        assert!(
            page.contains(&format!("distlock\\-{command}(1)")),
            "{command}: {page}"
        );
        let own = stdout(&plain_output(["man", command]).await);
        assert!(own.contains(&format!(".TH distlock-{command} 1")), "{own}");
        assert!(
            own.contains("Exit status") && own.contains("Examples"),
            "{own}"
        );
    }
    let unknown = plain_output(["man", "fly"]).await;
    assert_eq!(unknown.status.code(), Some(64), "{}", stderr(&unknown));
}

#[tokio::test]
async fn bash_completes_commands_and_options() {
    let script = stdout(&plain_output(["completions", "bash"]).await);
    let ask = "COMP_WORDS=(distlock run --busy); COMP_CWORD=2; _distlock distlock --busy run; echo \"${COMPREPLY[@]}\"";
    let said = program("bash")
        .args(["-c", &format!("{script}\n{ask}")])
        .output()
        .await
        .unwrap();
    assert_eq!(stdout(&said), "--busy-status\n", "{}", stderr(&said));
}

#[tokio::test]
async fn texts_of_errors_name_options_and_no_settings_of_the_library() {
    let server = RedisServer::start().await;
    for (args, names) in [
        (&["--max-hold", "0"] as &[&str], "--max-hold"),
        (
            &["--hold-at-least", "1m", "--max-hold", "1s"],
            "--hold-at-least is longer than --max-hold",
        ),
        (
            &["--hold-at-least", "1m", "--kind", "fair"],
            "--hold-at-least is for",
        ),
        (&["--connect-timeout", "0"], "--connect-timeout"),
        (&["--url", "rediss://127.0.0.1:1#insecure"], "--tls-ca-file"),
        (&["--url", "http://127.0.0.1:1"], "redis://"),
        (&["--default-wait", "9000h"], "`unlimited` for no limit"),
        (&["--warn-after", "0s"], "`unlimited` for no warning"),
        (
            &["--url", "redis://127.0.0.1:1?abortConnect=false"],
            "a word of other clients; leave it out",
        ),
        // A file or a variable often ends with a line end.
        (
            &["--url", "rediss://127.0.0.1:1#Insecure\n"],
            "--tls-ca-file",
        ),
        (
            &["--tls-ca-file", "ca.pem", "--url", "redis://127.0.0.1:1"],
            "rediss://",
        ),
        (&["--tls-ca-file", "/ca.pem"], "--tls-ca-file = /ca.pem"),
        (&["--tls-server-name", "h"], "--tls-server-name = h"),
        (&["--map-file", "/map"], "--map-file = /map"),
        (
            &["--sentinel-password-file", "/p"],
            "--sentinel-password-file = /p",
        ),
    ] {
        let wrong = output(&server, &[&["run", "job"], args, &["--", "true"]].concat()).await;
        assert_eq!(wrong.status.code(), Some(64), "{args:?}");
        let said = stderr(&wrong);
        assert!(said.contains(names), "{args:?}: {said}");
        for word in ["_", "Builder", "feature", "Duration"] {
            assert!(!said.contains(word), "{args:?}: {said}");
        }
    }
    let held = [
        "run",
        "job",
        "--max-hold",
        "100ms",
        "--json",
        "--",
        "sleep",
        "1000",
    ];
    let said = stderr(&output(&server, &held).await);
    assert!(
        said.contains("--max-hold") && !said.contains("`max_hold`"),
        "{said}"
    );
}

#[tokio::test]
async fn error_of_a_url_names_the_words_of_a_url_and_no_options() {
    for (word, says) in [
        ("connect_timeout=5", "connect_timeout"),
        ("odd=5", "`key_prefix`"),
    ] {
        let url = format!("redis://127.0.0.1:1?{word}");
        let wrong = plain_output(["--url", &url, "ls"]).await;
        assert_eq!(wrong.status.code(), Some(64), "{word}");
        let said = stderr(&wrong);
        assert!(said.contains(says) && !said.contains("--"), "{said}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn output_that_cannot_be_written_is_said_to_be_the_output() {
    let script = format!("exec '{PROGRAM}' man >/dev/full");
    let mut command = program("sh");
    command.args(["-c", &script]);
    let output = command.output().await.unwrap();
    assert_eq!(output.status.code(), Some(70));
    assert!(
        stderr(&output).contains("stdout cannot be written: "),
        "{}",
        stderr(&output)
    );
}

#[tokio::test]
async fn lease_of_a_run_is_its_option_or_that_of_the_url() {
    let server = RedisServer::start().await;
    let url = format!("{}?watchdog_timeout=90s", server.url());
    for (words, least, most) in [
        (&["--lease", "3m"] as &[&str], 120_000, 180_000),
        (&[], 60_000, 90_000),
    ] {
        let run = ["--url", &url, "run", "job"].into_iter();
        let mut run = Process::start(
            PROGRAM,
            run.chain(words.iter().copied())
                .chain(["--", "sh", "-c", "echo running; read line"]),
        );
        run.expect("running", SOON).await;
        let who = stdout(&output(&server, &["who", "job", "--json"]).await);
        let who: serde_json::Value = serde_json::from_str(&who).unwrap();
        let left = who["holders"][0]["lease_left_ms"].as_u64().unwrap();
        assert!((least..=most).contains(&left), "{words:?}: {left}");
        run.send("end");
        run.wait(SOON).await;
    }
    let two_words = ["run", "job", "--watchdog-timeout", "1m", "--", "true"];
    let refused = output(&server, &two_words).await;
    assert_eq!(refused.status.code(), Some(64), "{}", stderr(&refused));
}
