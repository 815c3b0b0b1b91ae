#!/bin/sh
# Makes .venv ready to run everything in this repository; quick when it already is. `make demo` and `make test` call it.
#
# Where ROS 2 is sourced, the environment uses its rclpy; elsewhere it gets the same libraries as wheels from PyPI.
# PYTHON=... chooses the interpreter.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
venv=.venv
stamp=$venv/.installed
torch=2.13.0

fail() {
  echo "setup: $1" >&2
  exit 1
}

has_library() {
  PATH=$PATH:/sbin ldconfig -p | grep -q "$1"
}

install_system_packages() {
  missing=
  "$python" -c 'import ensurepip, venv' 2>/dev/null || missing="python3-venv"
  has_library libgomp.so.1 || missing="$missing libgomp1"
  has_library libEGL.so.1 && has_library libGL.so.1 || missing="$missing libegl1 libgl1 libgl1-mesa-dri"
  [ -n "$missing" ] || return 0

  command -v apt-get >/dev/null || fail "install what Debian calls$(printf ' %s' $missing), then try again"
  if [ "$(id -u)" = 0 ]; then
    root=
  elif sudo -n true 2>/dev/null; then
    root="sudo -n"
  else
    fail "system packages are missing; run: sudo apt-get update && sudo apt-get install -y$(printf ' %s' $missing)"
  fi
  echo "setup: installing$(printf ' %s' $missing)"
  $root apt-get update -q >/dev/null
  $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null
}

install_torch() {
  "$venv/bin/python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' && return 0
  # The CPU build, without gigabytes of CUDA; where its index cannot be reached, whatever the configured index offers.
  pip_install --no-deps --retries 0 --timeout 5 --index-url https://download.pytorch.org/whl/cpu "torch==$torch" 2>/dev/null ||
    pip_install "torch==$torch"
}

pip_install() {
  # Without the general advice that setuptools gives on every editable install.
  PYTHONWARNINGS=ignore "$venv/bin/python" -m pip install -q --disable-pip-version-check "$@"
}

command -v "$python" >/dev/null || fail "python3 is missing; run: apt-get install -y python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "Python 3.10 or newer is needed, $python is $("$python" -V)"

if [ -n "${AMENT_PREFIX_PATH:-}" ] && "$python" -c 'import rclpy' 2>/dev/null; then
  ros="ROS ${ROS_DISTRO:-}" venv_options=--system-site-packages extras=dev,servo,vla
else
  ros="wheels" venv_options='' extras=dev,ros,servo,vla
fi

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$ros" ] &&
  [ -z "$(find pyproject.toml setup.py package.xml launch scripts -newer "$stamp")" ]; then
  exit 0
fi

install_system_packages
# An environment made for the other kind of ROS would mix two copies of the same libraries.
[ ! -f "$stamp" ] || [ "$(cat "$stamp")" = "$ros" ] || rm -rf "$venv"
[ -x "$venv/bin/python" ] || "$python" -m venv $venv_options "$venv"
echo "setup: installing Python packages into $venv with rclpy from $ros; the first time takes some minutes"
pip_install --upgrade pip
install_torch
pip_install -e ".[$extras]"
echo "$ros" >"$stamp"
