#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that `make apk` and the Android tests need. Needs root where any is missing.
set -euo pipefail

packages=(aapt android-framework-res apksigner dexdump maven npm openjdk-17-jdk-headless zipalign)
missing=()
for package in "${packages[@]}"; do
    dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
# A JDK, Maven or npm from another source is accepted.
command -v mvn >/dev/null && missing=("${missing[@]/#maven/}")
command -v npm >/dev/null && missing=("${missing[@]/#npm/}")
command -v javac >/dev/null && missing=("${missing[@]/#openjdk-17-jdk-headless/}")
read -ra missing <<<"${missing[*]}"
if ((${#missing[@]} == 0)); then exit 0; fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
