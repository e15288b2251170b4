"""Two replicated banks. One of them has a mistake by which it loses money."""

import viewstamp as vs


class UnknownAccount(vs.CommandError):
    """There is no such account. No money was moved."""


class OutOfFunds(vs.CommandError):
    """The balance of the account is smaller than the amount. No money was moved."""


class Bank(vs.ReplicatedActor):
    """Accounts and their balances."""

    def __init__(self) -> None:
        self.accounts: dict[str, int] = {}

    @vs.command
    def open(self, account: str, amount: int) -> None:
        """Open an account with some money in it. An open account is not changed."""
        self.accounts.setdefault(account, amount)

    @vs.command
    def transfer(self, source: str, target: str, amount: int) -> None:
        """Move money. If it raises, no money was moved."""
        for account in (source, target):
            if account not in self.accounts:
                raise UnknownAccount(account)
        self._take(source, amount)
        self._give(target, amount)

    @vs.query
    def total(self) -> int:
        """Return the sum of all balances."""
        return sum(self.accounts.values())

    def _take(self, account: str, amount: int) -> None:
        if account not in self.accounts:
            raise UnknownAccount(account)
        if self.accounts[account] < amount:
            raise OutOfFunds(f"{account} has {self.accounts[account]}")
        self.accounts[account] -= amount

    def _give(self, account: str, amount: int) -> None:
        if account not in self.accounts:
            raise UnknownAccount(account)
        self.accounts[account] += amount


class HastyBank(Bank):
    """A bank with a mistake: its command changes the state before it has checked everything.

    If the target does not exist, the command has already taken the money from the source when it raises. Changes that a
    command made before it raised are not rolled back, so the money is lost on every member.
    """

    @vs.command
    def transfer(self, source: str, target: str, amount: int) -> None:
        """Move money. If it raises, money may be lost."""
        self._take(source, amount)
        self._give(target, amount)
